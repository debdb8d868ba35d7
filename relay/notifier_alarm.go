package relay

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
)

// readerWatch is a relay's look at the notification stream: a notifier that does not
// run can't tell.
type readerWatch struct {
	// fixed after construction
	r       *Relay
	streams *inbox.Streams
	gauge   prometheus.Gauge

	// owned by run
	last  time.Time // when anybody read
	alarm alarm
}

// watchEvery is the pace of looks for a reader.
const watchEvery = 15 * time.Second

func newReaderWatch(r *Relay, pool redis.UniversalClient) *readerWatch {
	return &readerWatch{
		r: r, streams: inbox.New(pool, inbox.Config{Logger: r.log, Metrics: r.cfg.Metrics}), last: time.Now(),
		gauge: promauto.With(r.cfg.Metrics).NewGauge(prometheus.GaugeOpts(gauge("notifications_unread",
			"1 where notifications wait and nobody has read any for a minute."))),
	}
}

// run raises an alarm where entries wait and nobody reads them. Not being able to look
// is no news: the look at leases tells of trouble of Redis.
func (w *readerWatch) run(ctx context.Context) {
	for pauseFor(ctx, watchEvery) {
		if b, err := w.streams.NotificationBacklog(ctx); err == nil {
			w.looked(b, time.Now())
		}
	}
}

func (w *readerWatch) looked(b inbox.NotificationBacklog, now time.Time) {
	if b.Idle >= 0 {
		w.last = later(w.last, now.Add(-b.Idle))
	}
	on := b.Length > 0 && now.Sub(w.last) > noReader
	w.alarm.set(w.r.log, on, "notifications wait and nobody has read any for a minute: run `lastmile notify`")
	w.gauge.Set(0)
	if on {
		w.gauge.Set(1)
	}
}
