@0xb7d0c2f1a8e34c55;

interface Echo {
  # Answers with the bytes that it was called with.
  call @0 (bytes :Data) -> (bytes :Data);
}
