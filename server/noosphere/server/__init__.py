"""The Noosphere server. Importing this package is cheap; its parts are imported where they are used."""
