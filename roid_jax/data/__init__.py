"""Logged data: names, files, and the arrays that training sees."""
