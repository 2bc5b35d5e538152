package sqlite_test

func writeUntilKilled(dir string) error { return nil }
