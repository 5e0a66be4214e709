"""Operations: everything a named tensor can be made by, each able to explain any of its numbers."""
