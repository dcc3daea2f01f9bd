// SPDX-License-Identifier: Apache-2.0

package fieldpath_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
)

type link struct {
	Bandwidth resource.Quantity   `json:"bandwidth"`
	Gen       *intstr.IntOrString `json:"gen,omitempty"`
}

type document struct {
	Kind  string          `json:"kind"`
	Count int32           `json:"count"`
	Share float64         `json:"share"`
	On    bool            `json:"on"`
	After metav1.Duration `json:"after"`
	Names []string        `json:"names"`
	Spec  struct {
		link  `json:",inline"`
		Links []link `json:"links"`
	} `json:"spec"`
}

// TestDecode: an error names the fields at fault and what is wanted there, whatever their type says of them.
func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing is wrong":               {`{"kind": "a", "count": 1, "spec": {"links": [{"bandwidth": "100G"}]}}`, ""},
		"an unknown field":               {`{"kind": "a", "spec": {"links": [{"bandwidth": "1"}, {"bandwidthMB": "1"}]}}`, "spec.links[1].bandwidthMB: there is no such field"},
		"a key that is a name elsewhere": {`{"kind": "a", "name": "x", "count": 1, "spec": {"links": [{"bandwidth": "1"}]}}`, "name: there is no such field"},
		"text behind the document":       {`{"kind": "a"} {}`, "want one document, and there is text behind it"},
		"an unknown mapping":             {`{"spek": {"links": [{"bandwidth": "1"}]}}`, "spek: there is no such field"},
		"two faults":                     {`{"count": "one", "on": 3}`, "count: want a whole number, not a text; on: want true or false, not a number"},
		"a number with a fraction":       {`{"count": 1.5}`, "count: want a whole number, not 1.5"},
		"a number that is too great":     {`{"count": 99999999999}`, "count: want a whole number, not 99999999999"},
		"a text for a number":            {`{"share": "0.5"}`, "share: want a number, not a text"},
		"a mapping for a list":           {`{"names": {}}`, "names: want a list, not a mapping"},
		"a list for a mapping":           {`{"spec": []}`, "spec: want a mapping, not a list"},
		"an item of another type":        {`{"names": ["a", 3]}`, "names[1]: want a text, not a number"},
		"a duration of two words":        {`{"after": "3 min"}`, `after: time: unknown unit " min" in duration "3 min"`},
		"a quantity that is none":        {`{"spec": {"links": [{"bandwidth": "fast"}]}}`, `spec.links[0].bandwidth: "fast": want a quantity such as 2, 0.5 or 100G`},
		"a bandwidth with a unit":        {`{"spec": {"bandwidth": "100GB/s"}}`, `spec.bandwidth: "100GB/s": want a quantity such as 2, 0.5 or 100G, in bytes a second: 100G`},
		"a bandwidth in bits":            {`{"spec": {"bandwidth": "100Gb/s"}}`, `spec.bandwidth: "100Gb/s": want a quantity such as 2, 0.5 or 100G, in bytes a second: 12500000k`},
		"a text that is no JSON":         {`{"kind": `, "unexpected EOF"},
		"another type than a mapping":    {`[]`, "json: cannot unmarshal array into Go value of type fieldpath_test.document"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := fieldpath.Decode([]byte(tc.text), &document{}); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecodeWraps: the decoder's own error, with its offset, is in that of the fields.
func TestDecodeWraps(t *testing.T) {
	err := fieldpath.Decode([]byte(`{"count": "one"}`), &document{})
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok || mistyped.Offset == 0 {
		t.Errorf("error %v does not wrap that of encoding/json", err)
	}
}

// FuzzDecode: whatever encoding/json refuses is refused, what it takes is taken, and no error has two lines.
func FuzzDecode(f *testing.F) {
	f.Add(`{"count": "one", "names": [1, {}], "spec": {"links": [{"bandwidth": "x"}]}}`)
	f.Add(`{"a": {"b": [[{"c": null}]]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		plain := d.Decode(&document{})
		err := fieldpath.Decode([]byte(text), &document{})
		if (plain == nil) != (err == nil) {
			t.Errorf("%q: %v, and encoding/json says %v", text, err, plain)
		}
		if fields, ok := errors.AsType[*fieldpath.Error](err); ok && strings.ContainsAny(fields.Error(), "\n\r") {
			t.Errorf("%q: %q has two lines", text, fields)
		}
	})
}
