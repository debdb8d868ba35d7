package e2e_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// eachPair runs a test on the first real servers found and on those of `lastmile embedded`.
func eachPair(t *testing.T, run func(t *testing.T, redisURL, mongoURL string)) {
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		run(t, testkit.RealRedis(t).URL, testkit.FirstMongo(t).URL)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		redis, mongo := testkit.FreeAddr(t), testkit.FreeAddr(t)
		testkit.Start(t, exec.Command(testkit.Binary(t), "embedded", "--redis-listen", redis, "--mongo-listen", mongo))
		awaitListening(t, redis, mongo)
		run(t, "redis://"+redis, "mongodb://"+mongo+"/lastmile")
	})
}

// The relay that owns the partition is killed in the middle of a stream of events: the other one
// takes over, and every recipient sees every event once and in order.
func TestRelayKilledInMidStream(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, redisURL, mongoURL string) {
		s := startProcesses(t, redisURL, mongoURL, 2, 2)
		const users, total, batch = 50, 2000, 20
		devices := make([]*device, users)
		want := make([][]string, users)
		for i := range devices {
			devices[i] = newDevice(t, fmt.Sprintf("user-%02d", i), s.TokenSecret)
			devices[i].connect(s.Sockets[i%2])
		}
		killed := false
		for sent := 0; sent < total; sent += batch {
			events := make([]event, batch)
			for i := range events {
				// Every user gets one of the batch, some get more.
				events[i] = event{"to": []string{devices[(sent+i)%users].user, devices[(sent+7*i)%users].user}, "type": "test", "data": event{"i": sent + i}}
			}
			for i, id := range s.publish(t, s.Sockets[(sent/batch)%2], events...) {
				for _, user := range unique((sent+i)%users, (sent+7*i)%users) {
					want[user] = append(want[user], id)
				}
			}
			if sent >= total/2 && !killed {
				killed = true
				s.owner(t).Kill(t)
			}
		}
		for i, device := range devices {
			device.awaitShown(60*time.Second, len(want[i]))
			sameOrder(t, device.user, device.ids(), want[i])
			device.check()
		}
		s.awaitSettled(t, 30*time.Second)
	})
}

func unique(a, b int) []int {
	if a == b {
		return []int{a}
	}
	return []int{a, b}
}

// 10,000 events to 1,000 connected users through the embedded pair.
func TestManyUsersThroughTheEmbeddedPair(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute under the race detector")
	}
	s, _ := startDev(t)
	const users, total, batch = 1000, 10_000, 500
	devices := make([]*device, users)
	want := make([][]string, users)
	for i := range devices {
		devices[i] = newDevice(t, fmt.Sprintf("crowd-%03d", i), s.TokenSecret)
		devices[i].connect(s.Sockets[i%2])
	}
	for sent := 0; sent < total; sent += batch {
		events := make([]event, batch)
		for i := range events {
			events[i] = event{"to": []string{devices[(sent+i)%users].user}, "type": "test", "data": event{"i": sent + i}}
		}
		for i, id := range s.publish(t, s.Sockets[0], events...) {
			user := (sent + i) % users
			want[user] = append(want[user], id)
		}
	}
	for i, device := range devices {
		device.awaitShown(120*time.Second, len(want[i]))
		sameOrder(t, device.user, device.ids(), want[i])
		if device.repeated > 0 {
			t.Errorf("%s: %d events came twice", device.user, device.repeated)
		}
		device.check()
	}
	s.awaitSettled(t, 30*time.Second)
}
