package token

import (
	"context"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// sight is how much of one token may become visible to one caller. Everything
// that makes something visible out of stored data takes one: a read, a mask, a
// fingerprint, a match, a duplicate that is found. Only this file makes them.
// The zero sight shows that the token exists and nothing else.
type sight struct {
	// data is what data, card and bank show.
	data access.Transform
	// details says whether mask, metadata, fingerprint_expression and
	// search_indexes are shown.
	details bool
	// fingerprint says whether the fingerprint is shown, can be searched for
	// and finds duplicates. Next to a mask it makes card numbers guessable.
	fingerprint bool
	// rests are the decisions that it rests on. They are stored with a response
	// that may be given out again: a replay needs as much access.
	rests []access.Shown
}

// restsOn are the decisions behind a sight: that about the operation, what the
// caller may read, and what lets it see the fingerprint.
func restsOn(c access.Caller, row store.Token, p access.Permission, t access.Transform, fingerprint bool) []access.Shown {
	rests := []access.Shown{{ID: row.ID, Permission: p, Transform: t}}
	read := decide(c, access.TokenRead, row).Transform
	if p != access.TokenRead && read != access.Nothing {
		rests = append(rests, access.Shown{ID: row.ID, Permission: access.TokenRead, Transform: read})
	}
	if use := decide(c, access.TokenUse, row).Transform; fingerprint && use > read && p != access.TokenUse {
		rests = append(rests, access.Shown{ID: row.ID, Permission: access.TokenUse, Transform: use})
	}
	return rests
}

// viewer decides what one caller sees. It lives as long as one transaction.
type viewer struct {
	c    access.Caller
	most access.Transform // what the caller asks to be shown at most
	keys *keyring.Keys
	set  *settings // nil until a decision depends on them
}

// atMost is the least of the transforms that a caller asks to be shown at most;
// without one, as much as the rules allow.
func atMost(asked []access.Transform) access.Transform {
	return slices.Min(append([]access.Transform{access.Reveal}, asked...))
}

// settings returns the tenant's settings, read at most once.
func (v *viewer) settings(ctx context.Context, tx store.Tx) (settings, error) {
	if v.set == nil {
		set, err := settingsOf(ctx, tx, v.keys)
		if err != nil {
			return settings{}, err
		}
		v.set = &set
	}
	return *v.set, nil
}

// look decides what an operation shows of a stored token. The error is the
// denial of the operation.
func (v *viewer) look(ctx context.Context, tx store.Tx, p access.Permission, row store.Token) (sight, error) {
	d := decide(v.c, p, row)
	if err := d.Err(); err != nil {
		return sight{}, err
	}
	seen, err := v.seesFingerprint(ctx, tx, row)
	return sight{data: min(d.Transform, v.most), details: true, fingerprint: seen}, err
}

// seesFingerprint decides whether the caller may see the fingerprint of a token.
func (v *viewer) seesFingerprint(ctx context.Context, tx store.Tx, row store.Token) (bool, error) {
	most := min(mostRevealing(v.c, row), v.most)
	if most != access.Mask {
		return most == access.Reveal, nil
	}
	set, err := v.settings(ctx, tx)
	return set.sees(most), err
}

// mostRevealing is the more revealing of what token:read and token:use show of
// a token.
func mostRevealing(c access.Caller, row store.Token) access.Transform {
	return max(decide(c, access.TokenRead, row).Transform, decide(c, access.TokenUse, row).Transform)
}

// sees reports whether a caller to whom at most this is shown may see the
// fingerprint too.
func (s settings) sees(most access.Transform) bool {
	return most == access.Reveal || most == access.Mask && s.MaskedFingerprints
}

// matcher decides which tokens a caller may find by comparing protected data.
// A comparison that finds a token shows what it was compared with, so a token
// that the caller may not see that much of does not match.
type matcher struct {
	c    access.Caller
	most access.Transform // what the caller asks to be shown at most
	set  settings
}

// fingerprint reports whether the caller may find a token by its fingerprint.
func (m matcher) fingerprint(row store.Token) bool {
	return m.set.sees(min(mostRevealing(m.c, row), m.most))
}

// data reports whether the caller may find a token by its search indexes:
// under a rule that redacts nothing of the data is shown, and so no match.
func (m matcher) data(row store.Token) bool {
	return min(decide(m.c, access.TokenSearch, row).Transform, m.most) >= access.Mask
}

// uniform returns what the caller may do to every token of its tenant, where
// that is the same for all. guarded asks whether that holds too for what the
// methods above look at.
func (m matcher) uniform(p access.Permission, guarded bool) (access.Decision, bool) {
	d, ok := m.c.DecideEverywhere(p)
	for _, looked := range []access.Permission{access.TokenRead, access.TokenUse, access.TokenSearch} {
		if _, same := m.c.DecideEverywhere(looked); guarded && !same {
			return d, false
		}
	}
	return d, ok
}

// mayReveal reports whether the caller may read a token as plaintext. Changes
// that make something new visible out of stored data take this.
func mayReveal(c access.Caller, row store.Token) bool {
	return decide(c, access.TokenRead, row).Transform == access.Reveal
}

// sightOfCreated is what the response to a create shows of the new token: the
// caller sent everything but the fingerprint.
func sightOfCreated(c access.Caller, set settings, row store.Token, create access.Decision) sight {
	seen := set.sees(mostRevealing(c, row))
	return sight{data: create.Transform, details: true, fingerprint: seen, rests: restsOn(c, row, access.TokenCreate, create.Transform, seen)}
}

// sightOfMade is what a caller sees of a token that somebody else made, or
// found as a duplicate, at its request: no more than a read by this caller, and
// never plaintext. A token that it may not read rests on nothing but its name.
func sightOfMade(c access.Caller, set settings, row store.Token) sight {
	read, seen := decide(c, access.TokenRead, row), set.sees(mostRevealing(c, row))
	return sight{
		data: min(access.Mask, read.Transform), details: read.Allowed(), fingerprint: seen,
		rests: restsOn(c, row, access.TokenRead, read.Transform, seen),
	}
}

// sightOfDuplicate is what the response to a create shows of an existing token
// that it repeats: no more than a read by the same caller, and never plaintext.
func sightOfDuplicate(c access.Caller, set settings, row store.Token, create access.Decision) sight {
	read, seen := decide(c, access.TokenRead, row), set.sees(mostRevealing(c, row))
	return sight{
		data: min(create.Transform, read.Transform), details: read.Allowed(), fingerprint: seen,
		rests: restsOn(c, row, access.TokenCreate, create.Transform, seen),
	}
}

// sightOfUpdated is what the response to an update shows of the token as it
// has become: no more than a read by the same caller, and never plaintext. Of
// data that the caller sent whole it sees the mask.
func sightOfUpdated(c access.Caller, set settings, row store.Token, update access.Transform, sentWhole bool) sight {
	read, seen := decide(c, access.TokenRead, row), set.sees(mostRevealing(c, row))
	s := sight{
		data: min(update, read.Transform), details: read.Allowed(), fingerprint: seen,
		rests: restsOn(c, row, access.TokenUpdate, update, seen),
	}
	if sentWhole {
		s.data = update
	}
	return s
}

// sightOfPreviewed is what a preview shows of a token: its mask, to a caller who
// may read it with mask or reveal, and nothing to others.
func sightOfPreviewed(c access.Caller, row store.Token) sight {
	if decide(c, access.TokenRead, row).Transform < access.Mask {
		return sight{}
	}
	return sight{data: access.Mask, details: true}
}
