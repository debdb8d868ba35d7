package outbox

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound is returned by Get when the outbox holds no document of that id.
	ErrNotFound = errors.New("event not found")

	// ErrHistoryLost is returned by Watch and Next when the change stream can't go on from its place: the
	// oplog has passed it, or it lies beyond all that the server knows. Who watches has to Scan, and to watch
	// anew without a token.
	ErrHistoryLost = errors.New("history of the change stream is lost")

	// ErrOtherCollection is returned by Watch when the place belongs to another collection than the one
	// that bears the outbox' name today. It is an ErrHistoryLost too.
	ErrOtherCollection = fmt.Errorf("outbox is another collection: %w", ErrHistoryLost)

	// ErrFenced is returned by TakeFence, SaveMarker and SaveSlot when somebody else took the partition.
	// Nothing was written. The error is a *FencedError.
	ErrFenced = errors.New("partition is fenced")

	// ErrUnreachable is returned by Open when no server answers.
	ErrUnreachable = errors.New("MongoDB does not answer")

	// ErrNotReplicaSet is returned by Open for a server without change streams and transactions.
	ErrNotReplicaSet = errors.New("MongoDB is no replica set")

	// ErrTooOld is returned by Open for a server older than MongoDB 4.4.
	ErrTooOld = errors.New("MongoDB is too old")
)

// FencedError is what ErrFenced comes as: the fence that was found, where it could be read.
type FencedError struct {
	Partition int
	Fence     int64 // of the caller
	Found     int64 // in the checkpoint; 0: there is no checkpoint
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("partition %d is fenced: the checkpoint has fence %d, the caller %d", e.Partition, e.Found, e.Fence)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }
