"""Small tools without IO or nouns, which every other package may import."""
