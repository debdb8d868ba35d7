package testkit

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Mongo is a MongoDB in which one test has a database to itself.
type Mongo struct {
	URL  string // its path names the test's own database
	Real bool   // no embedded one
}

// EachMongo runs a test against the embedded MongoDB and against the real one that was found.
func EachMongo(t *testing.T, run func(t *testing.T, s *Mongo)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { t.Parallel(); run(t, EmbeddedMongo(t)) })
	t.Run("real", func(t *testing.T) { t.Parallel(); run(t, RealMongo(t)) })
}

// FirstMongo is the real MongoDB that was found, else the embedded one.
func FirstMongo(t testing.TB) *Mongo {
	t.Helper()
	if findMongo() == fromEmbedded && !required("mongo") {
		return EmbeddedMongo(t)
	}
	return RealMongo(t)
}

// RealMongo is the real MongoDB that was found; the test is skipped (or fails, see Require) where there is none.
func RealMongo(t testing.TB) *Mongo {
	t.Helper()
	switch findMongo() {
	case fromURL:
		took("mongo", "the one of "+mongoURLName)
		return sharedMongo(t, os.Getenv(mongoURLName))
	case fromBinary:
		return sharedMongo(t, mongodURL(t))
	case fromDocker:
		took("mongo", "Docker, "+mongoImage)
		return sharedMongo(t, dockerMongo(t))
	}
	missing(t, "mongo")
	return nil
}

// Database is the name of the test's own database.
func (m *Mongo) Database() string {
	u, err := url.Parse(m.URL)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.Path, "/")
}

// Client is a client of the official driver, disconnected at the test's end.
func (m *Mongo) Client(t testing.TB) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(m.URL))
	if err != nil {
		t.Fatalf("connect to mongo: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Disconnect(ctx); err != nil {
			t.Errorf("disconnect from mongo: %v", err)
		}
	})
	return c
}

// sharedMongo takes a new database of a server that others use too, and drops it at the test's end.
func sharedMongo(t testing.TB, rawURL string) *Mongo {
	t.Helper()
	m := &Mongo{URL: withDatabase(t, rawURL), Real: true}
	c := m.Client(t)
	t.Cleanup(func() {
		// A transaction of a process that was killed holds it up until the server ends that, after a minute.
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		if err := c.Database(m.Database()).Drop(ctx); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return m
}

// withDatabase puts a new database's name into the URL's path. Where a user logs in stays as it was: without
// authSource that is the path's database, else admin.
func withDatabase(t testing.TB, rawURL string) string {
	t.Helper()
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		t.Fatal("parse mongo url: it has no scheme")
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/") // several hosts may stand there, so url.Parse is no help
	if strings.Contains(hosts, "@") && !strings.Contains(strings.ToLower(query), "authsource=") {
		query = strings.TrimPrefix(query+"&authSource="+cmp.Or(path, "admin"), "&")
	}
	out := scheme + "://" + hosts + "/lastmile_test_" + strings.ToLower(rand.Text()[:12])
	if query != "" {
		out += "?" + query
	}
	return out
}
