package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// update writes the vectors anew. That is right only together with a new
// version of a format: what older releases sealed must verify for ever.
var update = flag.Bool("update", false, "write testdata anew")

const (
	vectorsFile = "testdata/vectors.json"
	exportFile  = "testdata/export.jsonl"
)

// vectors are inputs and what becomes of them.
type vectors struct {
	Tenant     string            `json:"tenant"`
	Entry      store.LogEntry    `json:"entry"`
	EntryHash  audit.Hash        `json:"entry_hash"`
	Leaf       string            `json:"leaf"`
	LeafHash   audit.Hash        `json:"leaf_hash"`
	Checkpoint *audit.Checkpoint `json:"checkpoint"`
	Message    string            `json:"message"`
}

// makeVectors computes the vectors from their inputs with today's code.
func makeVectors(t *testing.T) vectors {
	v := vectors{
		Tenant: "11111111-2222-4333-8444-555555555555",
		Entry: store.LogEntry{
			ID: "01c2b7ba-1ab2-77b8-9d46-ae5adc833ccf", CreatedAt: store.At(time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)),
			ActorID: "6f1f3a52-6f0e-4a39-8a3c-52a0b7a3f001", ActorType: "application", SessionID: "s-1", EntityType: "card", EntityID: "card-1",
			Operation: "use", Outcome: "allowed", Message: "Token used by proxy", TraceID: "trace-1", ClientAddress: "192.0.2.7",
		},
	}
	v.EntryHash = audit.HashEntry(v.Tenant, v.Entry)
	leaf := hexBytes(t, "0006e09dadb5ca80"+"01c2b7ba1ab277b89d46ae5adc833ccf") // microseconds, id
	leaf = append(leaf, v.EntryHash[:]...)
	v.Leaf, v.LeafHash = hex.EncodeToString(leaf), audit.HashLeaf(leaf)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{0x42}, ed25519.SeedSize))
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	v.Checkpoint = &audit.Checkpoint{
		Tenant: v.Tenant, Number: 7, Entries: 2, Root: audit.Merkle([]audit.Hash{v.LeafHash, {1}}, nil), Previous: audit.Hash{9},
		SealedAt: v.Entry.CreatedAt.Time(), PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	}
	v.Checkpoint.Link, _ = audit.LinkAndMessage(v.Checkpoint)
	_, message := audit.LinkAndMessage(v.Checkpoint)
	v.Message, v.Checkpoint.Signature = hex.EncodeToString(message), ed25519.Sign(key, message)
	return v
}

func hexBytes(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheFormatsAreWhatTheyWere(t *testing.T) {
	made := makeVectors(t)
	if *update {
		text, err := json.MarshalIndent(made, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if got, want := marshal(t, made), marshal(t, v); !bytes.Equal(got, want) {
		t.Errorf("today's code makes\n%s, want\n%s", got, want)
	}
	if _, err := audit.ParseCheckpoint(marshal(t, v.Checkpoint)); err != nil {
		t.Errorf("ParseCheckpoint = %v", err)
	}
}

func TestTodaysCodeVerifiesWhatWasSealed(t *testing.T) {
	if *update {
		w := newWorld(t)
		tenant, _ := w.sealedLog()
		text, _ := w.export(tenant, audit.Range{})
		if err := os.WriteFile(exportFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(exportFile)
	if err != nil {
		t.Fatal(err)
	}
	v := readExport(t, string(text), nil)
	if !v.Clean() || v.Batches != 3 || v.Entries != 15 {
		t.Errorf("VerifyExport = %+v, finding %v", v, v.Finding)
	}
}

// The leaves and roots with which implementations of RFC 6962 are tested.
var (
	treeLeaves = []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"}
	treeRoots  = []string{
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
)

func TestTreesAreThoseOfRFC6962(t *testing.T) {
	var hashes []audit.Hash
	for i, leaf := range treeLeaves {
		hashes = append(hashes, audit.HashLeaf(hexBytes(t, leaf)))
		if root := audit.Merkle(hashes, nil); hex.EncodeToString(root[:]) != treeRoots[i] {
			t.Errorf("the root of %d leaves is %x, want %s", i+1, root, treeRoots[i])
		}
	}
}

func TestEveryLeafOfEveryTreeHasOneProof(t *testing.T) {
	for n := 1; n <= 40; n++ {
		hashes := make([]audit.Hash, n)
		for i := range hashes {
			hashes[i] = audit.HashLeaf([]byte{byte(i)})
		}
		paths := make([][]audit.Hash, n)
		root := audit.Merkle(hashes, paths)
		if root != audit.Merkle(hashes, nil) {
			t.Fatalf("%d leaves: the root depends on whether paths are asked for", n)
		}
		for i, h := range hashes {
			if !audit.Included(root, h, i, n, paths[i]) {
				t.Errorf("%d leaves: leaf %d is not included", n, i)
			}
			for j := range n + 1 {
				if j != i && audit.Included(root, h, j, n, paths[i]) {
					t.Errorf("%d leaves: leaf %d is included as %d", n, i, j)
				}
			}
			if audit.Included(root, h, i, n, append(paths[i][:len(paths[i]):len(paths[i])], audit.Hash{})) {
				t.Errorf("%d leaves: leaf %d is included with too long a path", n, i)
			}
			if n > 1 && audit.Included(root, h, i, n, paths[i][1:]) {
				t.Errorf("%d leaves: leaf %d is included with too short a path", n, i)
			}
			if audit.Included(root, audit.Hash{}, i, n, paths[i]) || audit.Included(audit.Hash{}, h, i, n, paths[i]) {
				t.Errorf("%d leaves: another leaf or root is taken for leaf %d", n, i)
			}
		}
		if audit.Included(root, hashes[0], -1, n, paths[0]) {
			t.Errorf("%d leaves: there is no leaf -1", n)
		}
	}
}
