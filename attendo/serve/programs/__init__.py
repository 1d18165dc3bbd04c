"""Our own API for programs: answers with every option of decoding, and scores of given answers."""
