package sqlite

import (
	"container/heap"
	"slices"
	"sync"
)

const (
	// maxTurnCost bounds what is done in one commit while more updates wait, in
	// statements, and rows read and inserted. It is about what maxGroup ordinary
	// updates cost, and about one that makes a thousand tokens.
	maxTurnCost = 4096
	// longUpdate is what an update costs that others do not share a commit with
	// if they come before it: all are answered when the last of them is done.
	longUpdate = 512
)

// updateQueue is what waits for the writer. The next update is that of the
// tenant that has cost the writer least since it began to wait: tenants that
// want little go before those that want much, and equals take turns. Updates of
// one tenant keep their order. When nobody waits, nothing is remembered.
type updateQueue struct {
	added chan struct{} // holds a value when there may be something to take
	ended func()        // is told that a commit ends before a long update

	mu      sync.Mutex // guards what follows
	closed  bool
	waiting int
	now     int64 // what the tenant that was served last had cost then
	served  int64 // updates that were given out
	tenants map[tenantKey]*tenantQueue
	order   tenantHeap // those that wait
}

// tenantQueue is what waits of one tenant.
type tenantQueue struct {
	updates []*update
	cost    int64 // in the time of the queue; never behind now when it begins to wait
	usual   int64 // what its updates cost lately
	served  int64 // updateQueue.served when it was served last
	index   int   // in order; -1 while nothing waits
}

type tenantHeap []*tenantQueue

func (h tenantHeap) Len() int { return len(h) }
func (h tenantHeap) Less(i, j int) bool {
	return h[i].cost < h[j].cost || h[i].cost == h[j].cost && h[i].served < h[j].served
}
func (h tenantHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *tenantHeap) Push(x any) {
	t := x.(*tenantQueue)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *tenantHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last], t.index = nil, -1
	*h = (*h)[:last]
	return t
}

func newUpdateQueue(ended func()) *updateQueue {
	return &updateQueue{added: make(chan struct{}, 1), ended: ended, tenants: make(map[tenantKey]*tenantQueue)}
}

// put adds an update; false when the queue is closed.
func (q *updateQueue) put(u *update) bool {
	if !q.add(u) {
		return false
	}
	q.signal() // which wakes the writer, who then needs the lock
	return true
}

func (q *updateQueue) add(u *update) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	t := q.tenants[u.tenant]
	if t == nil {
		t = &tenantQueue{usual: 1, index: -1}
		q.tenants[u.tenant] = t
	}
	t.updates = append(t.updates, u)
	q.waiting++
	if t.index < 0 {
		t.cost = max(t.cost, q.now)
		heap.Push(&q.order, t)
	}
	return true
}

func (q *updateQueue) signal() {
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// close lets nothing in any more. What waits can still be taken.
func (q *updateQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// take blocks until something waits, and appends up to most updates to group, in
// the order in which they are to be run; none when the queue is closed and empty.
func (q *updateQueue) take(group []*update, most int) []*update {
	for {
		q.mu.Lock()
		for len(group) < most && len(q.order) > 0 {
			if q.endsBefore(q.order[0], group) {
				q.ended()
				break
			}
			group = append(group, q.pop())
		}
		if len(group) == 0 { // then nobody owes anything
			clear(q.tenants)
			q.now, q.served = 0, 0
		}
		closed := q.closed
		q.mu.Unlock()
		if len(group) > 0 || closed {
			return group
		}
		<-q.added
	}
}

// endsBefore decides whether a commit ends before the next update of a tenant:
// it would be long, going by those before it, and another tenant has one in the
// commit, which would wait for it.
func (q *updateQueue) endsBefore(t *tenantQueue, group []*update) bool {
	return t.usual > longUpdate && slices.ContainsFunc(group, func(u *update) bool { return q.tenants[u.tenant] != t })
}

// pop takes the next update. What it will cost is not known yet: its tenant is
// charged what its updates cost lately.
func (q *updateQueue) pop() *update {
	t := q.order[0]
	u := t.updates[0]
	t.updates[0], t.updates = nil, t.updates[1:]
	q.waiting--
	q.served++
	q.now, t.served = max(q.now, t.cost), q.served
	u.charged = t.usual
	t.cost += u.charged
	if len(t.updates) == 0 {
		t.updates = nil
		heap.Pop(&q.order)
	} else {
		heap.Fix(&q.order, 0)
	}
	return u
}

// settle corrects what the tenant of an update was charged.
func (q *updateQueue) settle(u *update, cost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenants[u.tenant]
	t.cost += cost - u.charged
	t.usual = max(1, (t.usual+cost)/2)
	u.charged = cost
	if t.index >= 0 {
		heap.Fix(&q.order, t.index)
	}
}

// putBack returns updates that were taken and not run to the places that they
// had before those that wait. They are in the order in which they were taken.
func (q *updateQueue) putBack(list []*update) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := len(list) - 1; i >= 0; i-- {
		u := list[i]
		t := q.tenants[u.tenant]
		t.updates = append([]*update{u}, t.updates...)
		t.cost -= u.charged
		q.waiting++
		if t.index < 0 {
			heap.Push(&q.order, t)
		} else {
			heap.Fix(&q.order, t.index)
		}
	}
	if len(list) > 0 {
		q.signal()
	}
}
