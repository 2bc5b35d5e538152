package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var valueTests = []test{
	{"bytes come back exactly", exactBytes},
	{"ids come back exactly and are told apart", exactIDs},
	{"times keep their microseconds in every century", exactTimes},
	{"an expiry keeps its offset", expiryOffset},
	{"what is absent stays absent", absentStaysAbsent},
	{"text comes back exactly", exactText},
}

func exactBytes(f *fixture) {
	octets := make([]byte, 256)
	for i := range octets {
		octets[i] = byte(i)
	}
	long := bytes.Repeat([]byte{0, 0xFF, 'x', 0}, 256<<10) // 1 MiB
	for name, value := range map[string][]byte{
		"a NUL": {0}, "0xFF": {0xFF}, "not UTF-8": {0xC3, 0x28}, "quotes": []byte(`'"\;--`), "every byte": octets, "1 MiB": long,
	} {
		t := token(1)
		t.ID, t.Data, t.Details, t.ShortLived = name, value, value, value
		t.Terms = [][]byte{value[:min(64, len(value))]}
		a := application(1)
		a.ID, a.Rules = name, value
		k := key(name, 1)
		k.ID, k.Hash = name, value[:min(64, len(value))]
		s := keyset(name, 1)
		s.Wrapped = value
		visit := session(1)
		visit.ID, visit.KeyHash, visit.NonceHash, visit.Grant = name, k.Hash, k.Hash, value
		p := parcel(name, 1)
		p.Contents = value
		d := definition(name, 1)
		d.KeyHash, d.Contents = k.Hash, value
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
			return errors.Join(tx.InsertToken(ctx, t), tx.InsertApplication(ctx, a), tx.InsertKey(ctx, k), tx.PutKeyset(ctx, s), tx.PutMark(ctx, name, value),
				tx.InsertSession(ctx, visit), tx.InsertParcel(ctx, p), tx.InsertDefinition(ctx, d))
		})
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			gotToken, err := tx.Token(ctx, name)
			if err != nil {
				return err
			}
			found, err := tx.Tokens(ctx, store.TokenFilter{Now: day, Groups: every, Terms: t.Terms}, large)
			if err != nil {
				return err
			}
			gotKey, gotApplication, err := tx.KeyByHash(ctx, k.Hash)
			if err != nil {
				return err
			}
			mark, err := tx.Mark(ctx, name)
			if err != nil {
				return err
			}
			byKey, err := tx.SessionByKey(ctx, k.Hash)
			if err != nil {
				return err
			}
			byNonce, err := tx.SessionByNonce(ctx, k.Hash)
			if err != nil {
				return err
			}
			gotParcel, err := tx.Parcel(ctx, p.Kind, p.ID)
			if err != nil {
				return err
			}
			gotDefinition, err := tx.DefinitionByKey(ctx, k.Hash)
			if err != nil {
				return err
			}
			for part, same := range map[string]bool{
				"data": bytes.Equal(gotToken.Data, value), "details": bytes.Equal(gotToken.Details, value),
				"short-lived": bytes.Equal(gotToken.ShortLived, value), "rules": bytes.Equal(gotApplication.Rules, value),
				"hash": bytes.Equal(gotKey.Hash, k.Hash), "mark": bytes.Equal(mark, value),
				"grant": bytes.Equal(byKey.Grant, value) && bytes.Equal(byNonce.Grant, value), "contents": bytes.Equal(gotParcel.Contents, value),
				"definition": bytes.Equal(gotDefinition.Contents, value) && bytes.Equal(gotDefinition.KeyHash, k.Hash),
				"terms":      len(found) == 1 && len(gotToken.Terms) == 1 && bytes.Equal(gotToken.Terms[0], t.Terms[0]),
			} {
				if !same {
					f.Errorf("%s: the %s did not come back as they were", name, part)
				}
			}
			return nil
		})
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		sets, err := tx.Keysets(ctx)
		f.same("number of keysets", len(sets), 6)
		return err
	})
}

// names are texts that a store might mix up or cut short.
var names = []string{
	"a", "A", "á", "a\u0301", "aa", "a ", " a", "a%", "a_", "a'b", `a"b`, `a\b`, "a/b", "ß", "ss", "ẞ", "ǆ", "ı", "i", "I", "İ",
	"日本語", "𝒳", "\U0001F511", "\u202e", "\u00a0", "null", "NULL", "0", "00", "1e3", "1000.0", "0x10", "-1",
	strings.Repeat("x", 400), strings.Repeat("x", 399) + "X", strings.Repeat("é", 400),
}

func exactIDs(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for i, id := range names {
			t := token(i)
			t.ID, t.Terms = id, [][]byte{fmt.Appendf(nil, "id %d", i)}
			a := application(i)
			a.ID = id
			k := key(id, i)
			k.ID = id
			s := session(i)
			s.ID = id
			p := parcel(id, i)
			p.ID, p.Group = id, id
			d := definition(id, i)
			d.ID, d.ApplicationID = id, id
			if err := errors.Join(tx.InsertToken(ctx, t), tx.InsertApplication(ctx, a), tx.InsertKey(ctx, k), tx.PutMark(ctx, id, []byte(id)),
				tx.InsertSession(ctx, s), tx.InsertParcel(ctx, p), tx.InsertDefinition(ctx, d)); err != nil {
				return fmt.Errorf("name %d: %w", i, err)
			}
		}
		return nil
	})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		for i, id := range names {
			t, errToken := tx.Token(ctx, id)
			a, errApplication := tx.Application(ctx, id)
			keys, errKeys := tx.Keys(ctx, id)
			mark, errMark := tx.Mark(ctx, id)
			byTerm, errTerm := tx.Tokens(ctx, store.TokenFilter{Now: day, Groups: every, Terms: [][]byte{fmt.Appendf(nil, "id %d", i)}}, large)
			s, errSession := tx.Session(ctx, id)
			p, errParcel := tx.Parcel(ctx, id, id)
			inGroup, errGroup := tx.Parcels(ctx, store.ParcelFilter{Kind: id, Group: id}, large)
			d, errDefinition := tx.Definition(ctx, id, id)
			ofApplication, errList := tx.Definitions(ctx, store.DefinitionFilter{IDs: []string{id}, ApplicationID: id}, large)
			if err := errors.Join(errToken, errApplication, errKeys, errMark, errTerm, errSession, errParcel, errGroup, errDefinition, errList); err != nil {
				return fmt.Errorf("name %d: %w", i, err)
			}
			if t.ID != id || a.ID != id || len(keys) != 1 || keys[0].ID != id || keys[0].ApplicationID != id || string(mark) != id || len(byTerm) != 1 || byTerm[0].ID != id ||
				s.ID != id || p.Kind != id || p.ID != id || len(inGroup) != 1 || inGroup[0].Group != id ||
				d.Kind != id || d.ID != id || len(ofApplication) != 1 || ofApplication[0].ID != id {
				f.Errorf("name %d (%q): came back as %q, %q, %+v, %q, %d by term, %q, %q/%q, %d in its group, %q/%q, %d by application",
					i, id, t.ID, a.ID, keys, mark, len(byTerm), s.ID, p.Kind, p.ID, len(inGroup), d.Kind, d.ID, len(ofApplication))
			}
		}
		n, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: every, IDs: names})
		f.same("tokens counted by their ids", n, int64(len(names)))
		return err
	})
	f.sound()
}

func exactTimes(f *fixture) {
	for i, when := range []time.Time{
		time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC),
		time.Date(1970, 1, 1, 0, 0, 0, 1000, time.UTC),
		time.Date(1815, 12, 10, 0, 0, 0, 1000, time.UTC),
		time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(2031, 5, 6, 7, 8, 9, 0, time.FixedZone("", 14*3600)),
	} {
		want := store.At(when)
		t := token(i)
		t.CreatedAt, t.ModifiedAt, t.Expiry.At = want, want, want
		a := application(i)
		a.CreatedAt, a.ModifiedAt, a.ExpiresAt = want, want, want
		e := entry(i)
		e.CreatedAt = want
		s := session(i)
		s.CreatedAt, s.AuthorizedAt, s.ExpiresAt = want, want, want
		p := parcel("kind", i)
		p.CreatedAt, p.DueAt, p.ExpiresAt = want, want, want
		d := definition("kind", i)
		d.CreatedAt, d.ModifiedAt = want, want
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
			return errors.Join(tx.InsertToken(ctx, t), tx.InsertApplication(ctx, a), tx.AppendLog(ctx, e),
				tx.InsertSession(ctx, s), tx.InsertParcel(ctx, p), tx.InsertDefinition(ctx, d))
		})
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			gotToken, err := tx.Token(ctx, t.ID)
			if err != nil {
				return err
			}
			gotApplication, err := tx.Application(ctx, a.ID)
			if err != nil {
				return err
			}
			gotSession, err := tx.Session(ctx, s.ID)
			if err != nil {
				return err
			}
			gotParcel, err := tx.Parcel(ctx, p.Kind, p.ID)
			if err != nil {
				return err
			}
			gotDefinition, err := tx.Definition(ctx, d.Kind, d.ID)
			if err != nil {
				return err
			}
			f.same("definition at "+when.String(), gotDefinition, d)
			gotEntry, err := tx.LogEntry(ctx, at(e))
			f.same("session at "+when.String(), gotSession, s)
			f.same("parcel at "+when.String(), gotParcel, p)
			f.same("token at "+when.String(), gotToken, t)
			f.same("application at "+when.String(), gotApplication, a)
			f.same("entry at "+when.String(), gotEntry, e)
			if back := gotToken.CreatedAt.Time(); !back.Equal(when.Truncate(time.Microsecond)) {
				f.Errorf("time: got %v, want %v cut to microseconds", back, when)
			}
			return err
		})
	}
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		entries, err := tx.Logs(ctx, store.LogFilter{}, large)
		for i := 1; i < len(entries); i++ {
			if entries[i-1].CreatedAt < entries[i].CreatedAt {
				f.Errorf("log entry %d is older than the one behind it", i-1)
			}
		}
		return err
	})
}

func expiryOffset(f *fixture) {
	for i, offset := range []int{0, 1, -1, 3600, -5 * 3600, 14 * 3600, -12 * 3600, 20_700} {
		t := token(i)
		t.Expiry.OffsetSeconds = offset
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, t) })
		changed := version2(t, func(t *store.Token) { t.Version, t.Expiry.OffsetSeconds = 2, -offset })
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			got, err := tx.Token(ctx, t.ID)
			f.same("expiry as inserted", got.Expiry, t.Expiry)
			return err
		})
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceToken(ctx, changed) })
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			got, err := tx.Token(ctx, t.ID)
			f.same("expiry as replaced", got.Expiry, changed.Expiry)
			return err
		})
	}
}

func absentStaysAbsent(f *fixture) {
	bare := store.Token{ID: "bare", Type: "token", Containers: []string{"/"}, Data: []byte("sealed"), CreatedAt: day, Version: 1}
	empty := bare
	empty.ID, empty.Details, empty.ShortLived, empty.Terms = "empty", []byte{}, []byte{}, [][]byte{}
	a := store.Application{ID: "bare", Version: 1, CreatedAt: day}
	s := store.Session{ID: "bare", KeyHash: []byte("k"), NonceHash: []byte("n"), CreatedAt: day}
	p := store.Parcel{Kind: "kind", ID: "bare"}
	d := store.Definition{Kind: "kind", ID: "bare"}
	f.update(tenantD, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.InsertTenant(ctx, store.Tenant{}), tx.InsertToken(ctx, bare), tx.InsertToken(ctx, empty), tx.InsertApplication(ctx, a),
			tx.InsertSession(ctx, s), tx.InsertParcel(ctx, p), tx.InsertDefinition(ctx, d),
			tx.AppendLog(ctx, store.LogEntry{ID: uuid(1), CreatedAt: day}), tx.PutMark(ctx, "empty", []byte{}),
			tx.AppendLogBatch(ctx, store.LogBatch{Number: 1}, nil))
	})
	f.view(tenantD, func(ctx context.Context, tx store.Tx) error {
		gotBare, err := tx.Token(ctx, "bare")
		if err != nil {
			return err
		}
		f.same("token without the rest", gotBare, bare)
		gotEmpty, err := tx.Token(ctx, "empty")
		if err != nil {
			return err
		}
		if len(gotEmpty.Details)+len(gotEmpty.ShortLived)+len(gotEmpty.Terms) != 0 {
			f.Errorf("token with empty parts: got %+v", gotEmpty)
		}
		gotApplication, err := tx.Application(ctx, "bare")
		if err != nil {
			return err
		}
		f.same("application without the rest", gotApplication, a)
		gotSession, err := tx.Session(ctx, "bare")
		if err != nil {
			return err
		}
		f.same("session without the rest", gotSession, s)
		gotParcel, err := tx.Parcel(ctx, "kind", "bare")
		if err != nil {
			return err
		}
		f.same("parcel without the rest", gotParcel, p)
		gotDefinition, err := tx.Definition(ctx, "kind", "bare")
		if err != nil {
			return err
		}
		f.same("definition without the rest", gotDefinition, d)
		if mark, err := tx.Mark(ctx, "empty"); err != nil || len(mark) != 0 {
			f.Errorf("empty mark: got %q, error %v; want it there and empty", mark, err)
		}
		row, err := tx.TenantRow(ctx)
		if err != nil {
			return err
		}
		if row.ID != tenantD || row.Name != "" || len(row.Settings) != 0 || row.Secrets != nil || row.Deleting {
			f.Errorf("tenant without the rest: got %+v", row)
		}
		b, err := tx.LastLogBatch(ctx)
		if len(b.Leaves)+len(b.Root)+len(b.Link)+len(b.Signature) != 0 || b.Count != 0 || b.Dropped {
			f.Errorf("batch without the rest: got %+v", b)
		}
		return err
	})
}

func exactText(f *fixture) {
	words := append([]string{"<a href=\"x\">&amp;</a>", "\u2028\u2029", "tab\tnew\nline\r", "\x01\x1f\x7f"}, names...)
	containers := make([]string, 0, len(names))
	settings := map[string]string{}
	for i, n := range words {
		settings[n] = n
		containers = append(containers, fmt.Sprintf("/%03d %s/", i, n))
	}
	t := token(1)
	t.Type, t.Containers, t.CreatedBy, t.ModifiedBy = words[0], containers, words[1], words[2]
	a := application(1)
	a.Name, a.Permissions = words[0]+words[1]+words[2]+words[3], words
	d := definition(words[0], 1)
	d.Name, d.ApplicationID = strings.Join(words, " "), words[1]
	e := entry(1)
	e.Message, e.TraceID, e.EntityType, e.EntityID = words[0], words[1], words[2], words[3]
	row := tenant(tenantD)
	row.Settings, row.Name = settings, words[0]
	f.update(tenantD, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.InsertTenant(ctx, row), tx.InsertToken(ctx, t), tx.InsertApplication(ctx, a), tx.AppendLog(ctx, e), tx.InsertDefinition(ctx, d))
	})
	c := f.contents(tenantD)
	f.same("tenant", c.Tenant, []store.Tenant{row})
	f.same("tokens", c.Tokens, []store.Token{t})
	f.same("applications", c.Applications, []store.Application{a})
	f.same("log", c.Log, []store.LogEntry{e})
	f.same("definitions", c.Definitions, []store.Definition{d})
}
