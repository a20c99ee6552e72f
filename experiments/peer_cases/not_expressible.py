"""What a case says that no public call can say."""


class NotExpressible(Exception):
    """Raised with the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
