package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// What an attempt may die of so that another one may succeed. Whoever gives up
// reports them as they are.
var (
	errAgain = fmt.Errorf("postgres: too many changes of the same rows at once: %w", store.ErrUnavailable)
	errLost  = fmt.Errorf("postgres: connection lost: %w", store.ErrUnavailable)
)

// errUnreachable says that there is no connection to begin with. It is not
// tried again here: that is the caller's to decide.
var errUnreachable = fmt.Errorf("postgres: cannot connect: %w", store.ErrUnavailable)

// refusal returns the server's own word that a statement failed and that its
// transaction will not commit. A connection that ends with a farewell is no
// such word: the server may say it when a commit is already on disk.
func refusal(err error) (*pgconn.PgError, bool) {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.SeverityUnlocalized != "ERROR" {
		return nil, false
	}
	return pe, true
}

// mapError turns the driver's errors into the store's. Nothing of their texts
// is kept: they hold values, and those of connections what is in the URL.
func mapError(doing string, err, taken error) error {
	if err == nil {
		return nil
	}
	pe, ok := refusal(err)
	if !ok {
		return fmt.Errorf("postgres: %s: %w%s", doing, errLost, reason(err))
	}
	meaning := error(nil)
	switch class := pe.Code[:2]; {
	case pe.Code == "23505": // unique_violation
		if meaning = taken; taken == nil {
			meaning = store.ErrExists
		}
	case pe.Code == "2201F", pe.Code == "2201E": // a root or a logarithm of what is missing: see parcelRows
		if meaning = store.ErrNotFound; pe.Code == "2201E" {
			meaning = store.ErrConflict
		}
	case pe.Code == "40001", pe.Code == "40P01": // serialization_failure, deadlock_detected
		return errAgain
	case pe.Code == "55P03", pe.Code == "25006": // lock_not_available, read_only_sql_transaction
		meaning = store.ErrUnavailable
	case class == "53", class == "57", class == "58", class == "08": // no resources, intervention, system, connection
		meaning = store.ErrUnavailable
	case pe.Code == "XX001", pe.Code == "XX002": // data_corrupted, index_corrupted
		meaning = store.ErrDamaged
	}
	if meaning == nil {
		return fmt.Errorf("postgres: %s: SQLSTATE %s", doing, pe.Code)
	}
	return fmt.Errorf("postgres: %s: SQLSTATE %s: %w", doing, pe.Code, meaning)
}

// reason says in constant words why there is no connection, as far as it can
// be told without repeating an address or a name.
func reason(err error) string {
	var (
		pe    *pgconn.PgError
		dns   *net.DNSError
		errno syscall.Errno
	)
	switch {
	case errors.Is(err, errNoChanges):
		return " (it is a standby, or takes no changes)"
	case errors.As(err, &pe):
		return fmt.Sprintf(" (SQLSTATE %s)", pe.Code)
	case errors.As(err, &dns):
		return " (the host name is not known)"
	case errors.As(err, &errno):
		return fmt.Sprintf(" (%s)", errno.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, net.ErrClosed): // hangUp
		return " (no answer in time)"
	}
	return ""
}
