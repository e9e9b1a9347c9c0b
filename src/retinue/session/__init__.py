"""Sessions: the durable log, the mailbox, the ordered writer, the folds, and the contract of a store."""
