"""Services of mail: the only code that writes its tables."""
