"""What people look at: tables, progress bars, figures."""
