package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// mongodURL is that of the mongod which all tests of this process share: it takes seconds to start.
func mongodURL(t testing.TB) string {
	t.Helper()
	url, err := mongod()
	if err != nil {
		t.Fatal(err)
	}
	took("mongo", version("mongod"))
	return url
}

var mongod = sync.OnceValues(startMongod)

// mongodKeeper ends mongod, and removes its files, when its own standard input ends: that is when this
// process does, however it ends. No test's cleanup could, since any test may be the last.
const mongodKeeper = `
trap '' INT TERM
dir=$1; shift
mongod --dbpath "$dir" "$@" >"$dir/log" 2>&1 &
pid=$!
cat >/dev/null
kill -9 $pid; wait $pid 2>/dev/null
rm -rf "$dir"
`

func startMongod() (string, error) {
	release, port, err := reservePort()
	if err != nil {
		return "", err
	}
	_ = release // held as long as the process lives
	dir, err := os.MkdirTemp("", "lastmile-mongod-")
	if err != nil {
		return "", fmt.Errorf("make folder for mongod: %w", err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd := exec.Command("sh", append([]string{"-c", mongodKeeper, "sh", dir}, mongodFlags(port)...)...)
	if _, err := cmd.StdinPipe(); err != nil {
		return "", fmt.Errorf("start mongod: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start mongod: %w", err)
	}
	keepers = append(keepers, cmd)
	if err := initiate("mongodb://"+addr+"/?directConnection=true", addr); err != nil {
		log, _ := os.ReadFile(dir + "/log")
		return "", fmt.Errorf("make mongod a replica set: %w\n%s", err, log)
	}
	return "mongodb://" + addr + "/?replicaSet=rs0", nil
}

// mongodFlags are good for 4.4 and newer. There may be one mongod for each package under test at a time, so none takes
// half of the memory; and each ends by a kill, which would leave its socket file in /tmp for good.
func mongodFlags(port int) []string {
	return []string{
		"--port", strconv.Itoa(port), "--bind_ip", "127.0.0.1", "--nounixsocket",
		"--replSet", "rs0", "--oplogSize", "990", "--wiredTigerCacheSizeGB", "0.5",
	}
}

// keepers holds the pipes of the started keepers, which end by them: garbage collection would close one.
var keepers []*exec.Cmd

// initiate makes a replica set of one member, which calls itself member, and waits for its primary.
func initiate(url, member string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		return err
	}
	defer func() { _ = c.Disconnect(context.WithoutCancel(ctx)) }()
	admin := c.Database("admin")
	config := bson.D{{Key: "_id", Value: "rs0"}, {Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: member}}}}}
	if err := admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: config}}).Err(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		var hello struct{ IsWritablePrimary bool }
		if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err == nil && hello.IsWritablePrimary {
			return nil
		}
		pause(ctx, 50*time.Millisecond)
	}
	return errors.New("it has no primary after a minute")
}
