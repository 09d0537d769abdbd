"""How the console writes dates and times, by language: Django's `FORMAT_MODULE_PATH`."""
