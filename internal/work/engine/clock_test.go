package engine_test

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"boxoffice"
	"boxoffice/internal/work"
)

// stepped returns a time as time.Now returns it after the clock of the machine was
// set: the date has changed, and the monotonic clock has not. A machine
// that slept is the same, since the monotonic clock of Linux stops meanwhile. No
// function of package time makes such a time, so this writes its seconds, which
// begin at bit 30.
func stepped(at time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) += uint64(by/time.Second) << 30
	return at
}

// If the clock is set forward, every run looks expired at once. The other
// processes get a lease to renew their runs before these are repeated. Here the
// clock is set while a heartbeat takes the upkeep lease.
func TestClockSetForward(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	const lease = 30 * time.Second
	store := &outage{Store: p.store}
	var set atomic.Bool
	store.leased = func() {
		if set.CompareAndSwap(true, false) {
			p.advance(time.Hour)
		}
	}
	now := func() time.Time { return stepped(time.Now(), time.Duration(p.ahead.Load())) }
	p.run(nil, alone, func(c *config) {
		c.Store, c.Lease, c.Scheduling, c.Now = store, lease, time.Hour, now
	})
	p.until(func() bool { return store.looked.Load() > 5 }) // it does not wait for others any more
	run := work.Run{Work: id, Attempt: 1}
	p.start(run, "other", lease)
	set.Store(true)
	looked := store.looked.Load()
	p.until(func() bool { return !set.Load() && store.looked.Load() > looked+3 })
	held, err := p.store.Renew(t.Context(), "other", []work.Run{run}, boxoffice.At(now().Add(lease)))
	if err != nil || len(held) != 1 {
		t.Errorf("the other process has %v of its runs, %v", held, err)
	}
}
