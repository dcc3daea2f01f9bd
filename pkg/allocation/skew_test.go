// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// previousAllocation is the annotation as the previous release reads it: a field
// that is not here makes it refuse the whole. A field that is added to Allocation
// goes in here when the release that reads it first is the previous one.
type previousAllocation struct {
	Version     int                 `json:"version"`
	Node        string              `json:"node"`
	PodUID      types.UID           `json:"podUID"`
	Assumed     time.Time           `json:"assumed"`
	Enforced    bool                `json:"enforced"`
	Unconfirmed bool                `json:"unconfirmed,omitempty"`
	NUMANodes   []int               `json:"numaNodes,omitempty"`
	CPUSet      string              `json:"cpuset,omitempty"`
	Containers  []previousContainer `json:"containers,omitempty"`
}

type previousContainer struct {
	Name      string   `json:"name"`
	Resource  string   `json:"resource"`
	Init      bool     `json:"init,omitempty"`
	GPUs      []string `json:"gpus"`
	NUMANodes []int    `json:"numaNodes,omitempty"`
}

// fill sets every exported field of a struct, so that each is written.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		if !v.Type().Field(i).IsExported() || !f.IsZero() {
			continue
		}
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("text")
		case reflect.Int, reflect.Int32, reflect.Int64:
			f.SetInt(1)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Map:
			m := reflect.MakeMap(f.Type())
			m.SetMapIndex(reflect.New(f.Type().Key()).Elem(), reflect.New(f.Type().Elem()).Elem())
			f.Set(m)
		default:
			t.Fatalf("nothing to fill %s with", v.Type().Field(i).Name)
		}
	}
}

// TestPreviousReleaseReader: the previous release reads what this one writes.
func TestPreviousReleaseReader(t *testing.T) {
	a := sample()
	fill(t, reflect.ValueOf(a).Elem())
	fill(t, reflect.ValueOf(&a.Containers[0]).Elem())
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	var old previousAllocation
	if err := dec.Decode(&old); err != nil {
		t.Fatalf("after a roll-back nobody could read %s: %v", text, err)
	}
	if old.Version != 1 || old.PodUID != a.PodUID || !slices.Equal(old.Containers[0].GPUs, a.Containers[0].GPUs) {
		t.Errorf("it reads %+v, written was %s", old, text)
	}
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
