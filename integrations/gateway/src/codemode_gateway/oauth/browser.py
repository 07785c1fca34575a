"""The browser of whoever sits before this machine. Apart from sign-ins, which bring along all that OAuth takes."""

from __future__ import annotations


def open_in_browser(url: str) -> object:
    """Open a page in the user's browser; false where there is none."""
    import webbrowser

    return webbrowser.open(url)
