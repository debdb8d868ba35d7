package socket

import "sync"

// runner does jobs on at most n goroutines at a time, which end when nothing is left to do. A job is
// queued by a session at most once, so the queue is no longer than there are sessions.
type runner struct {
	// fixed after construction
	most int
	wg   *sync.WaitGroup // of all runners that give each other jobs

	mu      sync.Mutex
	queue   []func()
	workers int
}

func newRunner(most int, wg *sync.WaitGroup) *runner { return &runner{most: most, wg: wg} }

func (r *runner) submit(job func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, job)
	if r.workers < r.most {
		r.workers++
		r.wg.Go(r.work)
	}
}

func (r *runner) work() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.workers--
			r.queue = nil
			r.mu.Unlock()
			return
		}
		job := r.queue[0]
		r.queue[0] = nil
		r.queue = r.queue[1:]
		r.mu.Unlock()
		job()
	}
}
