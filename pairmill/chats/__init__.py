"""Chats: their templates, and rows that are rendered by them. Used by sources, clean and tokenize; it imports none."""
