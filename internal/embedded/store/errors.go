package store

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Error is an error that goes to the client as it stands: with the code and the
// labels of a MongoDB server (src/mongo/base/error_codes.yml).
type Error struct {
	Code    int32
	Message string
	Labels  []string
	// KeyPattern and KeyValue tell which key was there already (code 11000).
	KeyPattern, KeyValue bson.Raw
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (%s %d)", e.Message, CodeName(e.Code), e.Code)
}

// Errorf makes an [Error].
func Errorf(code int32, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Codes of a MongoDB server that this server answers.
const (
	CodeInternalError           = 1
	CodeBadValue                = 2
	CodeFailedToParse           = 9
	CodeTypeMismatch            = 14
	CodeOverflow                = 15
	CodeInvalidLength           = 16
	CodeIllegalOperation        = 20
	CodeNamespaceNotFound       = 26
	CodeIndexNotFound           = 27
	CodeCursorNotFound          = 43
	CodeNamespaceExists         = 48
	CodeDollarField             = 52
	CodeCommandNotFound         = 59
	CodeImmutableField          = 66
	CodeCannotCreateIndex       = 67
	CodeInvalidOptions          = 72
	CodeInvalidNamespace        = 73
	CodeIndexOptionsConflict    = 85
	CodeIndexKeySpecsConflict   = 86
	CodeWriteConflict           = 112
	CodeCappedPositionLost      = 136
	CodeTransactionTooOld       = 225
	CodeCursorKilled            = 237
	CodeNotImplemented          = 238
	CodeNoSuchTransaction       = 251
	CodeTransactionCommitted    = 256
	CodeInvalidResumeToken      = 260
	CodeOperationNotInTxn       = 263
	CodeChangeStreamFatal       = 280
	CodeChangeStreamHistoryLost = 286
	CodeBSONObjectTooLarge      = 10334
	CodeDuplicateKey            = 11000
	CodeInterrupted             = 11601
)

var codeNames = map[int32]string{
	CodeInternalError: "InternalError", CodeBadValue: "BadValue", CodeFailedToParse: "FailedToParse",
	CodeTypeMismatch: "TypeMismatch", CodeInvalidLength: "InvalidLength", CodeIllegalOperation: "IllegalOperation",
	CodeNamespaceNotFound: "NamespaceNotFound", CodeIndexNotFound: "IndexNotFound", CodeCursorNotFound: "CursorNotFound",
	CodeNamespaceExists: "NamespaceExists", CodeCommandNotFound: "CommandNotFound", CodeImmutableField: "ImmutableField",
	CodeCannotCreateIndex: "CannotCreateIndex", CodeInvalidOptions: "InvalidOptions", CodeInvalidNamespace: "InvalidNamespace",
	CodeIndexOptionsConflict: "IndexOptionsConflict", CodeIndexKeySpecsConflict: "IndexKeySpecsConflict",
	CodeWriteConflict: "WriteConflict", CodeCappedPositionLost: "CappedPositionLost", CodeTransactionTooOld: "TransactionTooOld",
	CodeCursorKilled: "CursorKilled", CodeNotImplemented: "NotImplemented", CodeNoSuchTransaction: "NoSuchTransaction",
	CodeTransactionCommitted: "TransactionCommitted", CodeInvalidResumeToken: "InvalidResumeToken",
	CodeOperationNotInTxn: "OperationNotSupportedInTransaction", CodeChangeStreamFatal: "ChangeStreamFatalError",
	CodeChangeStreamHistoryLost: "ChangeStreamHistoryLost", CodeBSONObjectTooLarge: "BSONObjectTooLarge",
	CodeOverflow: "Overflow", CodeDollarField: "DollarPrefixedFieldName",
	CodeDuplicateKey: "DuplicateKey", CodeInterrupted: "Interrupted",
}

// CodeName is the name that a server gives with a code; "Location<code>" for
// those without one.
func CodeName(code int32) string {
	if name, ok := codeNames[code]; ok {
		return name
	}
	return fmt.Sprintf("Location%d", code)
}

// LabelTransient is the label of an error after which the whole transaction can
// be tried again.
const LabelTransient = "TransientTransactionError"

func writeConflict() *Error {
	return Errorf(CodeWriteConflict, "WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document transaction.")
}
