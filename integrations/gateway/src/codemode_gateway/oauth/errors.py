"""How a sign-in fails. Knows nothing of how it is done, and costs nothing to import."""

from __future__ import annotations

from codemode.errors import CodeModeAuthenticationError


class SignInError(CodeModeAuthenticationError):
    """A sign-in failed, or somebody has to sign in first. Its message names the server and the way out."""


class RefusedError(SignInError):
    """The authorization server does not take what it was shown: to show it again is no use."""


class UnreachableError(SignInError):
    """The authorization server cannot be reached now, or answers with rubbish; later it may be otherwise."""
