"""A file as text and as the bytes that it was: what is written back differs where it should and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import files
from ..config.values import ConfigError
from .writing import write_whole

_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class FileText:
    """The content of the file at ``path``, None where there is none."""

    path: Path
    content: bytes | None

    @classmethod
    def of(cls, path: Path, most: int = files.MAX_BYTES) -> FileText:
        """Read it. Raises `ConfigError` where it is there and cannot be read, or is no text."""
        if not files.is_there(path):
            return cls(path, None)
        found = cls(path, files.content_of(path, most))
        _ = found.text
        return found

    def __repr__(self) -> str:
        return f"<FileText {str(self.path)!r}>"

    @property
    def is_there(self) -> bool:
        return self.content is not None

    @property
    def text(self) -> str:
        return files.decoded(self.content or b"", self.path)

    def encoded(self, text: str) -> bytes:
        """Return a new text as bytes, marked as UTF-8 where the old one is."""
        return (_MARK if (self.content or b"").startswith(_MARK) else b"") + text.encode()

    def write(self, text: str) -> None:
        """Put a new text in place of the old one. Raises `ConfigError` where somebody else has changed it by now."""
        self.check_unchanged()
        write_whole(self.path, self.encoded(text))

    def check_unchanged(self) -> None:
        """Raise `ConfigError` unless the file is as it was read."""
        now = files.content_of(self.path, len(self.content or b"") + 1) if files.is_there(self.path) else None
        if now != self.content:
            raise ConfigError(f"{self.path}: this file was changed just now by something else; try again")
