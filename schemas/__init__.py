"""JSON Schemas as files, and the two validators over them."""
