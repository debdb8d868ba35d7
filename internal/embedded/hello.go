package embedded

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// What the server announces. The wire version is that of MongoDB 7.0, the
// oldest that the drivers' current major versions still test against.
const (
	serverVersion   = "7.0.0"
	minWireVersion  = 0
	maxWireVersion  = 21
	sessionMinutes  = 30
	maxWriteBatch   = 100_000
	topologyCounter = 6
)

var helloCommands = map[string]spec{
	"hello":            {run: hello},
	"isMaster":         {run: hello},
	"ping":             {run: ping},
	"buildInfo":        {run: buildInfo},
	"connectionStatus": {run: connectionStatus},
	"replSetGetStatus": {run: replSetGetStatus},
}

func ping(context.Context, *request) (bson.D, error) { return nil, nil }

func hello(ctx context.Context, r *request) (bson.D, error) {
	if err := r.awaitTopology(ctx); err != nil {
		return nil, err
	}
	m := r.server
	last := timestamp(m.engine.OperationTime())
	date := bson.DateTime(int64(last.T) * 1000)
	opTime := opTime(last)
	primary := "isWritablePrimary"
	d := bson.D{}
	if r.name == "isMaster" {
		primary = "ismaster"
		if boolean(r.body, "helloOk", false) {
			d = append(d, bson.E{Key: "helloOk", Value: true})
		}
	}
	return append(d, bson.D{
		{Key: "topologyVersion", Value: m.topologyVersion()},
		{Key: "hosts", Value: []string{m.Addr()}},
		{Key: "setName", Value: setName},
		{Key: "setVersion", Value: int32(1)},
		{Key: primary, Value: true},
		{Key: "secondary", Value: false},
		{Key: "primary", Value: m.Addr()},
		{Key: "me", Value: m.Addr()},
		{Key: "electionId", Value: m.electionID},
		{Key: "lastWrite", Value: bson.D{
			{Key: "opTime", Value: opTime}, {Key: "lastWriteDate", Value: date},
			{Key: "majorityOpTime", Value: opTime}, {Key: "majorityWriteDate", Value: date},
		}},
		{Key: "maxBsonObjectSize", Value: int32(16 << 20)},
		{Key: "maxMessageSizeBytes", Value: int32(48_000_000)},
		{Key: "maxWriteBatchSize", Value: int32(maxWriteBatch)},
		{Key: "localTime", Value: bson.NewDateTimeFromTime(time.Now())},
		{Key: "logicalSessionTimeoutMinutes", Value: int32(sessionMinutes)},
		{Key: "connectionId", Value: r.connID},
		{Key: "minWireVersion", Value: int32(minWireVersion)},
		{Key: "maxWireVersion", Value: m.cfg.WireVersion},
		{Key: "readOnly", Value: false},
	}...), nil
}

func opTime(ts bson.Timestamp) bson.D {
	return bson.D{{Key: "ts", Value: ts}, {Key: "t", Value: int64(1)}}
}

func (m *Mongo) topologyVersion() bson.D {
	return bson.D{{Key: "processId", Value: m.processID}, {Key: "counter", Value: int64(topologyCounter)}}
}

// awaitTopology: a hello that knows the topology already wants the answer when
// it changes, or after maxAwaitTimeMS. Here it never changes.
func (r *request) awaitTopology(ctx context.Context) error {
	known, err := document(r.body, "topologyVersion")
	if err != nil || known == nil {
		return err
	}
	if id, ok := known.Lookup("processId").ObjectIDOK(); !ok || id != r.server.processID {
		return nil
	}
	ms, err := integer(r.body, "maxAwaitTimeMS", 0)
	if err == nil && ms > 0 {
		pause(ctx, time.Duration(ms)*time.Millisecond)
	}
	return err
}

func buildInfo(context.Context, *request) (bson.D, error) {
	return bson.D{
		{Key: "version", Value: serverVersion},
		{Key: "gitVersion", Value: "lastmile-embedded"},
		{Key: "modules", Value: bson.A{}},
		{Key: "allocator", Value: "go"},
		{Key: "javascriptEngine", Value: "none"},
		{Key: "sysInfo", Value: "deprecated"},
		{Key: "versionArray", Value: []int32{7, 0, 0, 0}},
		{Key: "openssl", Value: bson.D{{Key: "running", Value: "disabled"}, {Key: "compiled", Value: "disabled"}}},
		{Key: "buildEnvironment", Value: bson.D{}},
		{Key: "bits", Value: int32(64)},
		{Key: "debug", Value: false},
		{Key: "maxBsonObjectSize", Value: int32(16 << 20)},
		{Key: "storageEngines", Value: []string{"memory"}},
	}, nil
}

func connectionStatus(context.Context, *request) (bson.D, error) {
	return bson.D{{Key: "authInfo", Value: bson.D{
		{Key: "authenticatedUsers", Value: bson.A{}}, {Key: "authenticatedUserRoles", Value: bson.A{}},
	}}}, nil
}

func replSetGetStatus(_ context.Context, r *request) (bson.D, error) {
	m := r.server
	last := timestamp(m.engine.OperationTime())
	now, date := bson.NewDateTimeFromTime(time.Now()), bson.DateTime(int64(last.T)*1000)
	return bson.D{
		{Key: "set", Value: setName},
		{Key: "date", Value: now},
		{Key: "myState", Value: int32(1)},
		{Key: "term", Value: int64(1)},
		{Key: "heartbeatIntervalMillis", Value: int64(2000)},
		{Key: "majorityVoteCount", Value: int32(1)},
		{Key: "writeMajorityCount", Value: int32(1)},
		{Key: "votingMembersCount", Value: int32(1)},
		{Key: "writableVotingMembersCount", Value: int32(1)},
		{Key: "optimes", Value: bson.D{
			{Key: "lastCommittedOpTime", Value: opTime(last)}, {Key: "lastCommittedWallTime", Value: date},
			{Key: "readConcernMajorityOpTime", Value: opTime(last)},
			{Key: "appliedOpTime", Value: opTime(last)}, {Key: "durableOpTime", Value: opTime(last)},
			{Key: "lastAppliedWallTime", Value: date}, {Key: "lastDurableWallTime", Value: date},
		}},
		{Key: "members", Value: bson.A{bson.D{
			{Key: "_id", Value: int32(0)}, {Key: "name", Value: m.Addr()}, {Key: "health", Value: 1.0},
			{Key: "state", Value: int32(1)}, {Key: "stateStr", Value: "PRIMARY"},
			{Key: "optime", Value: opTime(last)}, {Key: "optimeDate", Value: date}, {Key: "self", Value: true},
		}}},
	}, nil
}
