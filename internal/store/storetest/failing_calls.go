package storetest

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// failingTx, failingTenants and failingEpochs have every method of what they
// stand for and embed nothing: a call that is added to the store is added here,
// or this does not compile.
type (
	failingTx struct {
		f  *Failing
		tx store.Tx
	}
	failingTenants struct {
		f   *Failing
		all store.AllTenants
	}
	failingEpochs struct {
		f    *Failing
		keys store.EpochKeys
	}
)

func (x failingTx) Tenant() string { return x.tx.Tenant() }

func (x failingTx) InsertTenant(ctx context.Context, t store.Tenant) error {
	return x.f.do(ctx, "InsertTenant", func() error { return x.tx.InsertTenant(ctx, t) })
}

func (x failingTx) TenantRow(ctx context.Context) (store.Tenant, error) {
	return get(ctx, x.f, "TenantRow", func() (store.Tenant, error) { return x.tx.TenantRow(ctx) })
}

func (x failingTx) ReplaceTenant(ctx context.Context, t store.Tenant) error {
	return x.f.do(ctx, "ReplaceTenant", func() error { return x.tx.ReplaceTenant(ctx, t) })
}

func (x failingTx) DeleteTenantRows(ctx context.Context, limit int) (bool, error) {
	return get(ctx, x.f, "DeleteTenantRows", func() (bool, error) { return x.tx.DeleteTenantRows(ctx, limit) })
}

func (x failingTx) InsertApplication(ctx context.Context, a store.Application) error {
	return x.f.do(ctx, "InsertApplication", func() error { return x.tx.InsertApplication(ctx, a) })
}

func (x failingTx) Application(ctx context.Context, id string) (store.Application, error) {
	return get(ctx, x.f, "Application", func() (store.Application, error) { return x.tx.Application(ctx, id) })
}

func (x failingTx) ReplaceApplication(ctx context.Context, a store.Application) error {
	return x.f.do(ctx, "ReplaceApplication", func() error { return x.tx.ReplaceApplication(ctx, a) })
}

func (x failingTx) DeleteApplication(ctx context.Context, id string) error {
	return x.f.do(ctx, "DeleteApplication", func() error { return x.tx.DeleteApplication(ctx, id) })
}

func (x failingTx) Applications(ctx context.Context, f store.ApplicationFilter, p store.Page) ([]store.Application, error) {
	return get(ctx, x.f, "Applications", func() ([]store.Application, error) { return x.tx.Applications(ctx, f, p) })
}

func (x failingTx) CountApplications(ctx context.Context, f store.ApplicationFilter) (int64, error) {
	return get(ctx, x.f, "CountApplications", func() (int64, error) { return x.tx.CountApplications(ctx, f) })
}

func (x failingTx) InsertKey(ctx context.Context, k store.Key) error {
	return x.f.do(ctx, "InsertKey", func() error { return x.tx.InsertKey(ctx, k) })
}

func (x failingTx) Keys(ctx context.Context, applicationID string) ([]store.Key, error) {
	return get(ctx, x.f, "Keys", func() ([]store.Key, error) { return x.tx.Keys(ctx, applicationID) })
}

func (x failingTx) KeyByHash(ctx context.Context, hash []byte) (v store.Key, u store.Application, err error) {
	err = x.f.do(ctx, "KeyByHash", func() error { v, u, err = x.tx.KeyByHash(ctx, hash); return err })
	return v, u, err
}

func (x failingTx) DeleteKey(ctx context.Context, applicationID string, id string) error {
	return x.f.do(ctx, "DeleteKey", func() error { return x.tx.DeleteKey(ctx, applicationID, id) })
}

func (x failingTx) Keysets(ctx context.Context) ([]store.Keyset, error) {
	return get(ctx, x.f, "Keysets", func() ([]store.Keyset, error) { return x.tx.Keysets(ctx) })
}

func (x failingTx) PutKeyset(ctx context.Context, k store.Keyset) error {
	return x.f.do(ctx, "PutKeyset", func() error { return x.tx.PutKeyset(ctx, k) })
}

func (x failingTx) DestroyKeysets(ctx context.Context) error {
	return x.f.do(ctx, "DestroyKeysets", func() error { return x.tx.DestroyKeysets(ctx) })
}

func (x failingTx) Mark(ctx context.Context, name string) ([]byte, error) {
	return get(ctx, x.f, "Mark", func() ([]byte, error) { return x.tx.Mark(ctx, name) })
}

func (x failingTx) PutMark(ctx context.Context, name string, value []byte) error {
	return x.f.do(ctx, "PutMark", func() error { return x.tx.PutMark(ctx, name, value) })
}

func (x failingTx) InsertToken(ctx context.Context, t store.Token) error {
	return x.f.do(ctx, "InsertToken", func() error { return x.tx.InsertToken(ctx, t) })
}

func (x failingTx) Token(ctx context.Context, id string) (store.Token, error) {
	return get(ctx, x.f, "Token", func() (store.Token, error) { return x.tx.Token(ctx, id) })
}

func (x failingTx) TokenType(ctx context.Context, id string) (string, error) {
	return get(ctx, x.f, "TokenType", func() (string, error) { return x.tx.TokenType(ctx, id) })
}

func (x failingTx) ReplaceToken(ctx context.Context, t store.Token) error {
	return x.f.do(ctx, "ReplaceToken", func() error { return x.tx.ReplaceToken(ctx, t) })
}

func (x failingTx) DeleteToken(ctx context.Context, id string) error {
	return x.f.do(ctx, "DeleteToken", func() error { return x.tx.DeleteToken(ctx, id) })
}

func (x failingTx) TokenGroups(ctx context.Context) ([]store.TokenGroup, error) {
	return get(ctx, x.f, "TokenGroups", func() ([]store.TokenGroup, error) { return x.tx.TokenGroups(ctx) })
}

func (x failingTx) Tokens(ctx context.Context, f store.TokenFilter, p store.Page) ([]store.Token, error) {
	return get(ctx, x.f, "Tokens", func() ([]store.Token, error) { return x.tx.Tokens(ctx, f, p) })
}

func (x failingTx) CountTokens(ctx context.Context, f store.TokenFilter) (int64, error) {
	return get(ctx, x.f, "CountTokens", func() (int64, error) { return x.tx.CountTokens(ctx, f) })
}

func (x failingTx) CountTypes(ctx context.Context, now store.Time) (map[string]int64, error) {
	return get(ctx, x.f, "CountTypes", func() (map[string]int64, error) { return x.tx.CountTypes(ctx, now) })
}

func (x failingTx) InsertSession(ctx context.Context, s store.Session) error {
	return x.f.do(ctx, "InsertSession", func() error { return x.tx.InsertSession(ctx, s) })
}

func (x failingTx) Session(ctx context.Context, id string) (store.Session, error) {
	return get(ctx, x.f, "Session", func() (store.Session, error) { return x.tx.Session(ctx, id) })
}

func (x failingTx) SessionByKey(ctx context.Context, hash []byte) (store.Session, error) {
	return get(ctx, x.f, "SessionByKey", func() (store.Session, error) { return x.tx.SessionByKey(ctx, hash) })
}

func (x failingTx) SessionByNonce(ctx context.Context, hash []byte) (store.Session, error) {
	return get(ctx, x.f, "SessionByNonce", func() (store.Session, error) { return x.tx.SessionByNonce(ctx, hash) })
}

func (x failingTx) ReplaceSession(ctx context.Context, s store.Session) error {
	return x.f.do(ctx, "ReplaceSession", func() error { return x.tx.ReplaceSession(ctx, s) })
}

func (x failingTx) DeleteSession(ctx context.Context, id string) error {
	return x.f.do(ctx, "DeleteSession", func() error { return x.tx.DeleteSession(ctx, id) })
}

func (x failingTx) Sessions(ctx context.Context, f store.SessionFilter, p store.Page) ([]store.Session, error) {
	return get(ctx, x.f, "Sessions", func() ([]store.Session, error) { return x.tx.Sessions(ctx, f, p) })
}

func (x failingTx) CountSessions(ctx context.Context, f store.SessionFilter) (int64, error) {
	return get(ctx, x.f, "CountSessions", func() (int64, error) { return x.tx.CountSessions(ctx, f) })
}

func (x failingTx) InsertParcel(ctx context.Context, p store.Parcel) error {
	return x.f.do(ctx, "InsertParcel", func() error { return x.tx.InsertParcel(ctx, p) })
}

func (x failingTx) Parcel(ctx context.Context, kind string, id string) (store.Parcel, error) {
	return get(ctx, x.f, "Parcel", func() (store.Parcel, error) { return x.tx.Parcel(ctx, kind, id) })
}

func (x failingTx) ReplaceParcel(ctx context.Context, p store.Parcel) error {
	return x.f.do(ctx, "ReplaceParcel", func() error { return x.tx.ReplaceParcel(ctx, p) })
}

func (x failingTx) DeleteParcel(ctx context.Context, kind string, id string) error {
	return x.f.do(ctx, "DeleteParcel", func() error { return x.tx.DeleteParcel(ctx, kind, id) })
}

func (x failingTx) Parcels(ctx context.Context, f store.ParcelFilter, p store.Page) ([]store.Parcel, error) {
	return get(ctx, x.f, "Parcels", func() ([]store.Parcel, error) { return x.tx.Parcels(ctx, f, p) })
}

func (x failingTx) CountParcels(ctx context.Context, f store.ParcelFilter) (int64, error) {
	return get(ctx, x.f, "CountParcels", func() (int64, error) { return x.tx.CountParcels(ctx, f) })
}

func (x failingTx) InsertDefinition(ctx context.Context, d store.Definition) error {
	return x.f.do(ctx, "InsertDefinition", func() error { return x.tx.InsertDefinition(ctx, d) })
}

func (x failingTx) Definition(ctx context.Context, kind string, id string) (store.Definition, error) {
	return get(ctx, x.f, "Definition", func() (store.Definition, error) { return x.tx.Definition(ctx, kind, id) })
}

func (x failingTx) DefinitionByKey(ctx context.Context, hash []byte) (store.Definition, error) {
	return get(ctx, x.f, "DefinitionByKey", func() (store.Definition, error) { return x.tx.DefinitionByKey(ctx, hash) })
}

func (x failingTx) ReplaceDefinition(ctx context.Context, d store.Definition) error {
	return x.f.do(ctx, "ReplaceDefinition", func() error { return x.tx.ReplaceDefinition(ctx, d) })
}

func (x failingTx) DeleteDefinition(ctx context.Context, kind string, id string) error {
	return x.f.do(ctx, "DeleteDefinition", func() error { return x.tx.DeleteDefinition(ctx, kind, id) })
}

func (x failingTx) Definitions(ctx context.Context, f store.DefinitionFilter, p store.Page) ([]store.Definition, error) {
	return get(ctx, x.f, "Definitions", func() ([]store.Definition, error) { return x.tx.Definitions(ctx, f, p) })
}

func (x failingTx) CountDefinitions(ctx context.Context, f store.DefinitionFilter) (int64, error) {
	return get(ctx, x.f, "CountDefinitions", func() (int64, error) { return x.tx.CountDefinitions(ctx, f) })
}

func (x failingTx) AddActivity(ctx context.Context, counts []store.Activity) error {
	return x.f.do(ctx, "AddActivity", func() error { return x.tx.AddActivity(ctx, counts) })
}

func (x failingTx) Activity(ctx context.Context, f store.ActivityFilter, limit int) ([]store.Activity, error) {
	return get(ctx, x.f, "Activity", func() ([]store.Activity, error) { return x.tx.Activity(ctx, f, limit) })
}

func (x failingTx) DropActivity(ctx context.Context, width int64, before store.Time) error {
	return x.f.do(ctx, "DropActivity", func() error { return x.tx.DropActivity(ctx, width, before) })
}

func (x failingTx) AppendLog(ctx context.Context, entries ...store.LogEntry) error {
	return x.f.do(ctx, "AppendLog", func() error { return x.tx.AppendLog(ctx, entries...) })
}

func (x failingTx) Logs(ctx context.Context, f store.LogFilter, p store.Page) ([]store.LogEntry, error) {
	return get(ctx, x.f, "Logs", func() ([]store.LogEntry, error) { return x.tx.Logs(ctx, f, p) })
}

func (x failingTx) CountLogs(ctx context.Context, f store.LogFilter) (int64, error) {
	return get(ctx, x.f, "CountLogs", func() (int64, error) { return x.tx.CountLogs(ctx, f) })
}

func (x failingTx) LogEntry(ctx context.Context, at store.Position) (store.LogEntry, error) {
	return get(ctx, x.f, "LogEntry", func() (store.LogEntry, error) { return x.tx.LogEntry(ctx, at) })
}

func (x failingTx) LogPositions(ctx context.Context, after *store.Position, limit int) ([]store.Position, error) {
	return get(ctx, x.f, "LogPositions", func() ([]store.Position, error) { return x.tx.LogPositions(ctx, after, limit) })
}

func (x failingTx) UnsealedLog(ctx context.Context, limit int) ([]store.LogEntry, error) {
	return get(ctx, x.f, "UnsealedLog", func() ([]store.LogEntry, error) { return x.tx.UnsealedLog(ctx, limit) })
}

func (x failingTx) UnsealedLogPositions(ctx context.Context, after *store.Position, limit int) ([]store.Position, error) {
	return get(ctx, x.f, "UnsealedLogPositions", func() ([]store.Position, error) { return x.tx.UnsealedLogPositions(ctx, after, limit) })
}

func (x failingTx) CountUnsealedLog(ctx context.Context) (int64, error) {
	return get(ctx, x.f, "CountUnsealedLog", func() (int64, error) { return x.tx.CountUnsealedLog(ctx) })
}

func (x failingTx) AppendLogBatch(ctx context.Context, b store.LogBatch, sealed []store.Position) error {
	return x.f.do(ctx, "AppendLogBatch", func() error { return x.tx.AppendLogBatch(ctx, b, sealed) })
}

func (x failingTx) LogBatches(ctx context.Context, after int64, limit int) ([]store.LogBatch, error) {
	return get(ctx, x.f, "LogBatches", func() ([]store.LogBatch, error) { return x.tx.LogBatches(ctx, after, limit) })
}

func (x failingTx) LastLogBatch(ctx context.Context) (store.LogBatch, error) {
	return get(ctx, x.f, "LastLogBatch", func() (store.LogBatch, error) { return x.tx.LastLogBatch(ctx) })
}

func (x failingTx) DropLogBatch(ctx context.Context, number int64, entries []store.Position) error {
	return x.f.do(ctx, "DropLogBatch", func() error { return x.tx.DropLogBatch(ctx, number, entries) })
}

func (x failingTenants) Tenants(ctx context.Context, after string, limit int) ([]store.Tenant, error) {
	return get(ctx, x.f, "Tenants", func() ([]store.Tenant, error) { return x.all.Tenants(ctx, after, limit) })
}

func (x failingTenants) ExpiredTokens(ctx context.Context, now store.Time, skip, limit int) ([]store.TokenRef, error) {
	return get(ctx, x.f, "ExpiredTokens", func() ([]store.TokenRef, error) { return x.all.ExpiredTokens(ctx, now, skip, limit) })
}

func (x failingTenants) OutdatedTokens(ctx context.Context, after string, skip, limit int) ([]store.TokenRef, error) {
	return get(ctx, x.f, "OutdatedTokens", func() ([]store.TokenRef, error) { return x.all.OutdatedTokens(ctx, after, skip, limit) })
}

func (x failingTenants) ExpiredSessions(ctx context.Context, now store.Time, skip, limit int) ([]store.SessionRef, error) {
	return get(ctx, x.f, "ExpiredSessions", func() ([]store.SessionRef, error) { return x.all.ExpiredSessions(ctx, now, skip, limit) })
}

func (x failingTenants) ExpiredParcels(ctx context.Context, now store.Time, skip, limit int) ([]store.ParcelRef, error) {
	return get(ctx, x.f, "ExpiredParcels", func() ([]store.ParcelRef, error) { return x.all.ExpiredParcels(ctx, now, skip, limit) })
}

func (x failingTenants) DueParcels(ctx context.Context, kind string, now store.Time, after string, tenants, each int) (due []store.ParcelRef, next string, err error) {
	due, err = get(ctx, x.f, "DueParcels", func() (found []store.ParcelRef, err error) {
		found, next, err = x.all.DueParcels(ctx, kind, now, after, tenants, each)
		return found, err
	})
	return due, next, err
}

func (x failingTenants) DueKinds(ctx context.Context) ([]string, error) {
	return get(ctx, x.f, "DueKinds", func() ([]string, error) { return x.all.DueKinds(ctx) })
}

func (x failingTx) NumberEvents(ctx context.Context, limit int) (int, error) {
	return get(ctx, x.f, "NumberEvents", func() (int, error) { return x.tx.NumberEvents(ctx, limit) })
}

func (x failingTx) Events(ctx context.Context, f store.EventFilter, after int64, limit int) ([]store.Event, error) {
	return get(ctx, x.f, "Events", func() ([]store.Event, error) { return x.tx.Events(ctx, f, after, limit) })
}

func (x failingTx) EventHead(ctx context.Context) (store.EventHead, error) {
	return get(ctx, x.f, "EventHead", func() (store.EventHead, error) { return x.tx.EventHead(ctx) })
}

func (x failingTx) PutDispatched(ctx context.Context, through int64) error {
	return x.f.do(ctx, "PutDispatched", func() error { return x.tx.PutDispatched(ctx, through) })
}

func (x failingTx) DropEvents(ctx context.Context, before store.Time, limit int) (int, error) {
	return get(ctx, x.f, "DropEvents", func() (int, error) { return x.tx.DropEvents(ctx, before, limit) })
}

func (x failingTenants) EventTenants(ctx context.Context, after string, limit int) ([]string, error) {
	return get(ctx, x.f, "EventTenants", func() ([]string, error) { return x.all.EventTenants(ctx, after, limit) })
}

func (x failingTenants) UnsealedTenants(ctx context.Context, after string, limit int) ([]string, error) {
	return get(ctx, x.f, "UnsealedTenants", func() ([]string, error) { return x.all.UnsealedTenants(ctx, after, limit) })
}

func (x failingTenants) Current(ctx context.Context) error {
	return x.f.do(ctx, "Current", func() error { return x.all.Current(ctx) })
}

func (x failingTenants) Setting(ctx context.Context, name string) ([]byte, error) {
	return get(ctx, x.f, "Setting", func() ([]byte, error) { return x.all.Setting(ctx, name) })
}

func (x failingTenants) PutSetting(ctx context.Context, name string, value []byte) error {
	return x.f.do(ctx, "PutSetting", func() error { return x.all.PutSetting(ctx, name, value) })
}

func (x failingEpochs) EpochKey(ctx context.Context, tenant string, epoch int64) ([]byte, error) {
	return get(ctx, x.f, "EpochKey", func() ([]byte, error) { return x.keys.EpochKey(ctx, tenant, epoch) })
}

func (x failingEpochs) AddEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) ([]byte, error) {
	return get(ctx, x.f, "AddEpochKey", func() ([]byte, error) { return x.keys.AddEpochKey(ctx, tenant, epoch, wrapped) })
}

func (x failingEpochs) ReplaceEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) error {
	return x.f.do(ctx, "ReplaceEpochKey", func() error { return x.keys.ReplaceEpochKey(ctx, tenant, epoch, wrapped) })
}

func (x failingEpochs) EpochKeyList(ctx context.Context, tenant string) ([]int64, error) {
	return get(ctx, x.f, "EpochKeyList", func() ([]int64, error) { return x.keys.EpochKeyList(ctx, tenant) })
}

func (x failingEpochs) DestroyEpochKeys(ctx context.Context, first, last int64) (int, error) {
	return get(ctx, x.f, "DestroyEpochKeys", func() (int, error) { return x.keys.DestroyEpochKeys(ctx, first, last) })
}

func (x failingEpochs) DestroyTenantEpochKeys(ctx context.Context, tenant string) error {
	return x.f.do(ctx, "DestroyTenantEpochKeys", func() error { return x.keys.DestroyTenantEpochKeys(ctx, tenant) })
}
