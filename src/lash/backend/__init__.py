"""The part of each store that both databases share: check, encode, call the rows, decode, notify."""
