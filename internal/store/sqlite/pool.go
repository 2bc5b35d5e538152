package sqlite

// How much each connection of a pool keeps of the database, at most. A commit
// outdates what they keep, so that those of short reads keep little.
const (
	viewCacheKiB = 4 << 10
	readCacheKiB = 1 << 10
)

// connPool holds connections that cannot write, while nobody uses them.
type connPool chan *conn

func connectPool(path string, o Options, cacheKiB int) (connPool, error) {
	pool := make(connPool, o.Readers)
	for range o.Readers {
		c, err := connect(path, o, true, cacheKiB, lockWait)
		if err != nil {
			return pool, err
		}
		pool <- c
	}
	return pool, nil
}

// close closes all connections as they are given back. Nobody gets one after it.
func (p connPool) close() {
	for range cap(p) {
		c := <-p
		_ = c.close()
	}
	close(p)
}
