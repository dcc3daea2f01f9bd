// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func sample() *Allocation {
	return &Allocation{
		Version: Version, Node: "n", PodUID: "u", Assumed: time.Unix(1_700_000_000, 5).UTC(), Enforced: true,
		NUMANodes: []int{0, 1}, CPUSet: "0-3,8",
		Containers: []Container{{Name: "main", Resource: "nvidia.com/gpu", GPUs: []string{"GPU-b", "GPU-a"}, NUMANodes: []int{0}}},
	}
}

// TestAllocationRoundTrip: an allocation survives being written as an annotation and read back.
func TestAllocationRoundTrip(t *testing.T) {
	want := sample()
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Allocation{})); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
	if !got.Equal(want) || !got.CPUs().Has(8) {
		t.Errorf("parsed %+v is not equal to what was written", got)
	}
}

// TestMalformedAllocations: malformed allocations are refused.
func TestMalformedAllocations(t *testing.T) {
	valid, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ text, wantErr string }{
		"no JSON":               {"GPU-a", "invalid character"},
		"a list":                {"[]", "cannot unmarshal"},
		"another version":       {strings.Replace(valid, `"version":1`, `"version":2`, 1), "version 2"},
		"no version":            {strings.Replace(valid, `"version":1`, `"version":0`, 1), "version 0, want 1"},
		"text after the object": {valid + "{}", "text after"},
		"no node":               {strings.Replace(valid, `"node":"n"`, `"node":""`, 1), "node is empty"},
		"no pod":                {strings.Replace(valid, `"podUID":"u"`, `"podUID":""`, 1), "podUID is empty"},
		"a GPU twice":           {strings.Replace(valid, `"GPU-b"`, `"GPU-a"`, 1), "containers[0].gpus"},
		"no GPU":                {strings.Replace(valid, `["GPU-b","GPU-a"]`, `[]`, 1), "containers[0]"},
		"a cpuset backwards":    {strings.Replace(valid, `0-3,8`, `3-0`, 1), "cpuset"},
		"megabytes":             {strings.Repeat("x", maxAllocationBytes+1), "bytes"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
		})
	}
}

func FuzzParseAllocation(f *testing.F) {
	text, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(`{"version":1}`)
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			return
		}
		again, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b, err := Parse(again)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if !a.Equal(b) {
			t.Errorf("%+v became %+v", a, b)
		}
	})
}

// TestRewriteUnknownFields: rewriting drops fields that are not known.
func TestRewriteUnknownFields(t *testing.T) {
	text, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Parse(strings.Replace(text, `"version":1`, `"version":1,"ofTheOldChoice":true`, 1))
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again != text {
		t.Errorf("written anew: %s, want %s", again, text)
	}
}
