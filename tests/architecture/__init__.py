"""What holds for the whole code: layers, rooms, doors, and documents that are true."""
