package e2e_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// redisAt returns a client for a test's own looks.
func redisAt(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.DisableIdentity = true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestDevStartsAndEndsQuickly(t *testing.T) {
	t.Parallel()
	testkit.Binary(t) // compiled before the clock runs
	begun := time.Now()
	s, process := startDev(t)
	if took := time.Since(begun); took > limit(3*time.Second) {
		t.Errorf("ready after %s", took)
	}
	response, err := http.Get(s.Internal + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %s", response.Status)
	}

	begun = time.Now()
	process.Interrupt(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := process.Wait(ctx); err != nil {
		t.Fatalf("ends after Ctrl-C: %v\n%s", err, process.Output())
	}
	if took := time.Since(begun); took > limit(3*time.Second) {
		t.Errorf("ended %s after Ctrl-C", took)
	}
	for _, url := range append(s.Sockets, s.Chat, s.Internal, s.RedisURL) {
		address := url[strings.LastIndex(url, "/")+1:]
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			conn.Close()
			t.Errorf("%s still answers after the end", url)
		}
	}
}

// A client that knows nothing but the protocol's description: events posted by HTTP arrive in order
// with contiguous seqs, and a resumption brings exactly what was missed.
func TestRawClientOverTheWholeWay(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	alice := newDevice(t, "alice", s.TokenSecret)
	alice.connect(s.Sockets[0])
	first := alice.lastWelcome()
	if first.Recovered || first.Epoch == "" || first.Instance == "" || first.Session == "" || first.PingInterval <= 0 || first.MaxFrame <= 0 {
		t.Fatalf("welcome of a fresh connection: %+v", first)
	}

	var want []string
	for i := range 20 {
		// Posted at either server: where an event is published has nothing to do with where it is read.
		want = append(want, s.publish(t, s.Sockets[i%2], event{
			"to": []string{"alice", "bob"}, "type": "test.numbered", "subject": "room:1", "data": map[string]any{"i": i, "text": "<ünïcode> \"quoted\""},
		})...)
	}
	alice.awaitShown(5*time.Second, len(want))
	sameOrder(t, "alice", alice.ids(), want)
	assertContiguous(t, alice.seqs, first.Seq+1)
	shown := alice.shown[7]
	if shown.SpecVersion != "1.0" || shown.Type != "test.numbered" || shown.Subject != "room:1" || shown.Source == "" || shown.Time == "" {
		t.Errorf("event is no CloudEvent: %+v", shown)
	}
	if got := string(shown.Data); !strings.Contains(got, `<ünïcode>`) || !strings.Contains(got, `"i":7`) {
		t.Errorf("data arrived as %s", got)
	}

	alice.disconnect()
	for i := range 3 {
		want = append(want, s.publish(t, s.Sockets[0], event{"to": []string{"alice"}, "type": "test.missed", "data": map[string]any{"i": i}})...)
	}
	// Case F02: what was missed is replayed once, at the other server too; then nothing is.
	for round, replayed := range []int{3, 0, 0} {
		before := len(alice.seqs)
		alice.connect(s.Sockets[(round+1)%2])
		if !alice.lastWelcome().Recovered {
			t.Fatalf("round %d: not recovered", round)
		}
		alice.awaitShown(5*time.Second, len(want))
		if round > 0 {
			want = append(want, s.publish(t, s.Sockets[0], event{"to": []string{"alice"}, "type": "test.live", "data": map[string]any{}})...)
			alice.awaitShown(5*time.Second, len(want))
			replayed++
		}
		if got := len(alice.seqs) - before; got != replayed {
			t.Errorf("round %d: %d events came, want %d", round, got, replayed)
		}
	}
	sameOrder(t, "alice", alice.ids(), want)
	assertContiguous(t, alice.seqs, first.Seq+1)
	if alice.repeated > 0 {
		t.Errorf("%d events came twice", alice.repeated)
	}
	alice.check()
	s.awaitSettled(t, 10*time.Second)
}

func TestSecondDeviceGetsEverythingToo(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	phone, laptop := newDevice(t, "carol", s.TokenSecret), newDevice(t, "carol", s.TokenSecret)
	phone.connect(s.Sockets[0])
	laptop.connect(s.Sockets[1])
	var want []string
	for i := range 30 {
		want = append(want, s.publish(t, s.Sockets[i%2], event{"to": []string{"carol"}, "type": "test", "data": map[string]any{"i": i}})...)
	}
	for _, device := range []*device{phone, laptop} {
		device.awaitShown(5*time.Second, len(want))
		sameOrder(t, "carol", device.ids(), want)
		device.check()
	}
	s.awaitSettled(t, 10*time.Second)
}

func TestPublishAPIRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	cases := map[string]struct {
		body    any
		status  int
		pointer string
	}{
		"no recipient":       {event{"to": []string{}, "type": "t", "data": event{}}, http.StatusUnprocessableEntity, "/to"},
		"second of an array": {[]event{{"to": []string{"a"}, "type": "t", "data": event{}}, {"to": []string{"a"}, "data": event{}}}, http.StatusUnprocessableEntity, "/1/type"},
		"data is a number":   {event{"to": []string{"a"}, "type": "t", "data": 7}, http.StatusUnprocessableEntity, "/data"},
		"bad id":             {event{"id": "x", "to": []string{"a"}, "type": "t", "data": event{}}, http.StatusUnprocessableEntity, "/id"},
		"reserved type":      {event{"to": []string{"a"}, "type": "lastmile.probe", "data": event{}}, http.StatusUnprocessableEntity, "/type"},
	}
	for name, c := range cases {
		status, body := s.post(t, s.Sockets[0], c.body)
		if status != c.status || !strings.Contains(string(body), `"`+c.pointer+`"`) {
			t.Errorf("%s: got %d %s, want %d with %s", name, status, body, c.status, c.pointer)
		}
	}
	stranger := *s
	stranger.APIKey = "wrong"
	if status, _ := stranger.post(t, s.Sockets[0], event{"to": []string{"a"}, "type": "t", "data": event{}}); status != http.StatusUnauthorized {
		t.Errorf("wrong key: got %d", status)
	}

	// The same id again is accepted, and the first one stands.
	id := "0190a6c8-7f5b-7c3e-9d53-0e2f4b6a8c01"
	reader := newDevice(t, "dora", s.TokenSecret)
	reader.connect(s.Sockets[0])
	for _, text := range []string{"first", "second"} {
		s.publish(t, s.Sockets[0], event{"id": id, "to": []string{"dora"}, "type": "t", "data": event{"text": text}})
	}
	last := s.publish(t, s.Sockets[0], event{"to": []string{"dora"}, "type": "t", "data": event{}})
	reader.awaitShown(5*time.Second, 2)
	sameOrder(t, "dora", reader.ids(), []string{id, last[0]})
	if data := string(reader.shown[0].Data); !strings.Contains(data, "first") {
		t.Errorf("the second insert of one id replaced the first: %s", data)
	}
}

func TestEphemeralEventsHaveNoPlaceInTheLog(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	reader := newDevice(t, "erin", s.TokenSecret)
	reader.connect(s.Sockets[0])
	typing := s.publish(t, s.Sockets[1], event{"to": []string{"erin"}, "type": "typing", "data": event{}, "ephemeral": true})
	message := s.publish(t, s.Sockets[1], event{"to": []string{"erin"}, "type": "message", "data": event{}})
	reader.awaitShown(5*time.Second, 2)
	sameOrder(t, "erin", reader.ids(), append(typing, message...))
	if len(reader.seqs) != 1 {
		t.Errorf("deliveries with a seq: %v, want the message's alone", reader.seqs)
	}
	reader.check()
	s.awaitSettled(t, 10*time.Second)
}

func assertContiguous(t *testing.T, seqs []int64, from int64) {
	t.Helper()
	for i, seq := range seqs {
		if seq != from+int64(i) {
			t.Fatalf("seqs are not contiguous from %d: %v", from, seqs)
		}
	}
}
