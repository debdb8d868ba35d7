package embedded

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

var txnCommands = map[string]spec{
	"commitTransaction": {run: commitTransaction, fields: []string{"recoveryToken"}, txn: true},
	"abortTransaction":  {run: abortTransaction, fields: []string{"recoveryToken"}, txn: true},
	"endSessions":       {run: endSessions},
}

func commitTransaction(_ context.Context, r *request) (bson.D, error) {
	x := r.session
	if x.state == txnCommitted {
		return nil, nil
	}
	lsid, err := fullLSID(r.lsid)
	if err != nil {
		return nil, err
	}
	if err := x.txn.Commit(lsid, x.number); err != nil {
		r.abortTxn()
		return nil, store.Errorf(store.CodeNoSuchTransaction, "Transaction %d has been aborted.", x.number)
	}
	r.leaveTxn()
	x.state = txnCommitted
	return nil, nil
}

func abortTransaction(_ context.Context, r *request) (bson.D, error) {
	r.abortTxn()
	return nil, nil
}

func endSessions(_ context.Context, r *request) (bson.D, error) {
	list, err := documentList(r.body, "endSessions")
	if err != nil {
		return nil, err
	}
	for _, lsid := range list {
		if id, err := sessionID(lsid); err == nil {
			r.server.sessions.end(id)
		}
	}
	return nil, nil
}

// inSession runs a command in its session: as a statement of a transaction, as a
// retryable write, or plainly.
func (r *request) inSession(ctx context.Context, s spec) (bson.D, error) {
	number, numErr := r.body.LookupErr("txnNumber")
	autocommit, autoErr := r.body.LookupErr("autocommit")
	r.lsid, _ = r.body.Lookup("lsid").DocumentOK()
	if r.lsid == nil || numErr != nil {
		if r.name == "commitTransaction" || r.name == "abortTransaction" || autoErr == nil {
			return nil, store.Errorf(store.CodeInvalidOptions, "'%s' needs lsid and txnNumber", r.name)
		}
		return r.plainly(ctx, s)
	}
	n, ok := number.AsInt64OK()
	if !ok || n < 0 {
		return nil, store.Errorf(store.CodeInvalidOptions, "Transaction number cannot be negative")
	}
	id, err := sessionID(r.lsid)
	if err != nil {
		return nil, err
	}
	r.txnNumber, r.session = n, r.server.sessions.get(id)
	select {
	case r.session.busy <- struct{}{}:
		defer func() { <-r.session.busy }()
	case <-ctx.Done():
		return nil, store.Errorf(store.CodeInterrupted, "operation was interrupted")
	}
	if autoErr != nil {
		return r.retryable(ctx, s)
	}
	if on, ok := autocommit.BooleanOK(); !ok || on {
		return nil, store.Errorf(store.CodeInvalidOptions, "autocommit=true is not allowed; leave it out")
	}
	return r.statement(ctx, s)
}

// plainly runs a command that is no part of a transaction. Each sees the latest
// state, so that reads of one snapshot can't be served.
func (r *request) plainly(ctx context.Context, s spec) (bson.D, error) {
	if level, _ := r.body.Lookup("readConcern", "level").StringValueOK(); level == "snapshot" {
		return nil, store.Errorf(store.CodeNotImplemented, "read concern snapshot outside a transaction is not supported here")
	}
	return s.run(ctx, r)
}

// retryable answers a write that was done already with what was answered then.
func (r *request) retryable(ctx context.Context, s spec) (bson.D, error) {
	x := r.session
	if !s.write {
		return nil, store.Errorf(50768, "txnNumber may only be provided for multi-document transactions and retryable write commands. autocommit:false was not provided, and %s is not a retryable write command.", r.name)
	}
	switch {
	case r.txnNumber < x.number:
		return nil, r.tooOld()
	case r.txnNumber == x.number && x.state != txnRetryable:
		return nil, store.Errorf(50767, "Cannot use a retryable write with a txnNumber that was used for a transaction")
	case r.txnNumber == x.number && x.lastRes != nil:
		return append(bson.D{}, x.lastRes...), nil
	}
	r.leaveTxn()
	x.number, x.state, x.lastRes = r.txnNumber, txnRetryable, nil
	result, err := s.run(ctx, r)
	if err == nil {
		x.lastRes = append(bson.D{}, result...)
	}
	return result, err
}

// leaveTxn aborts an older transaction that a newer number supersedes.
func (r *request) leaveTxn() {
	if r.session.txn != nil {
		r.session.txn.Abort()
		r.session.txn = nil
		r.server.sessions.setOpen(r.session, nil)
	}
}

// statement runs a command of a multi-document transaction.
func (r *request) statement(ctx context.Context, s spec) (bson.D, error) {
	start := boolean(r.body, "startTransaction", false)
	if _, err := r.body.LookupErr("readConcern"); err == nil && !start {
		return nil, store.Errorf(store.CodeInvalidOptions, "Only the first command in a transaction may specify a readConcern")
	}
	var err error
	if start {
		err = r.startTxn()
	} else {
		err = r.continueTxn()
	}
	if err != nil {
		return nil, err
	}
	r.inTxn = true
	if !s.txn {
		r.abortTxn()
		return nil, r.notInTxn()
	}
	good := false
	defer func() { // also after a panic
		if !good {
			r.abortTxn()
		}
	}()
	result, err := s.run(ctx, r)
	good = r.name == "commitTransaction" || (err == nil && !hasWriteErrors(result))
	return result, transient(err)
}

func (r *request) notInTxn() error {
	if r.name == "createIndexes" {
		name, _ := r.body.Lookup(r.name).StringValueOK()
		return store.Errorf(store.CodeOperationNotInTxn, "Cannot create new indexes on existing collection %s.%s in a multi-document transaction.", r.db, name)
	}
	return store.Errorf(store.CodeOperationNotInTxn, "Cannot run '%s' in a multi-document transaction.", r.name)
}

func hasWriteErrors(d bson.D) bool {
	for _, e := range d {
		if e.Key == "writeErrors" {
			return true
		}
	}
	return false
}

// transient labels the errors after which the driver tries the whole transaction
// again.
func transient(err error) error {
	var coded *store.Error
	if !errors.As(err, &coded) {
		return err
	}
	if coded.Code == store.CodeWriteConflict || coded.Code == store.CodeNoSuchTransaction {
		labelled := *coded
		labelled.Labels = []string{store.LabelTransient}
		return &labelled
	}
	return err
}

func (r *request) startTxn() error {
	x := r.session
	if r.name == "commitTransaction" || r.name == "abortTransaction" {
		return store.Errorf(store.CodeOperationNotInTxn, "Cannot run '%s' as the first command of a transaction.", r.name)
	}
	if r.txnNumber < x.number {
		return r.tooOld()
	}
	if r.txnNumber == x.number {
		return store.Errorf(50911, "Cannot start a transaction at given transaction number %d a transaction with the same number has begun already", r.txnNumber)
	}
	r.leaveTxn()
	x.number, x.state, x.lastRes = r.txnNumber, txnOpen, nil
	x.txn = r.server.engine.Begin()
	r.server.sessions.setOpen(x, x.txn)
	return nil
}

func (r *request) tooOld() error {
	id, _ := uuid.FromBytes(bytes.Clone(r.lsid.Lookup("id").Value[5:]))
	return store.Errorf(store.CodeTransactionTooOld,
		"Cannot start transaction %d on session %s - %s because a newer transaction with txnNumber %d has already started on this session.",
		r.txnNumber, id, base64.StdEncoding.EncodeToString(anonymousUser[:]), r.session.number)
}

func (r *request) continueTxn() error {
	x := r.session
	if r.txnNumber != x.number || x.state == txnRetryable || x.state == txnNone {
		return transient(store.Errorf(store.CodeNoSuchTransaction,
			"Given transaction number %d does not match any in-progress transactions. The active transaction number is %d", r.txnNumber, x.number))
	}
	if x.state == txnOpen {
		select {
		case <-x.txn.Done(): // by the sweeper
			r.abortTxn()
		default:
		}
	}
	switch {
	case x.state == txnAborted:
		return transient(store.Errorf(store.CodeNoSuchTransaction, "Transaction %d has been aborted.", x.number))
	case x.state == txnCommitted && r.name != "commitTransaction":
		return store.Errorf(store.CodeTransactionCommitted, "Transaction %d has been committed.", x.number)
	}
	return nil
}

func (r *request) abortTxn() {
	r.leaveTxn()
	r.session.state = txnAborted
}
