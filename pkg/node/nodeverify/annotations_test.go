// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAnnotations(t *testing.T) {
	got, err := ParseAnnotations("a.b/c=\"{\\\"x\\\":1}\"\nd=\"two\\nlines = \"\n")
	if diff := cmp.Diff(map[string]string{"a.b/c": `{"x":1}`, "d": "two\nlines = "}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want,+got)\n%s", err, diff)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"a line without a value": {"a=\"1\"\nb", `line 2: want KEY="VALUE"`},
		"a value without quotes": {"a=1", "line 1: the value of a"},
		"a key twice":            {"a=\"1\"\na=\"2\"", "line 2: a is there twice"},
	} {
		if _, err := ParseAnnotations(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, tc.want)
		}
	}
}

// FuzzParseAnnotations: kubelet's way to write them is read back.
func FuzzParseAnnotations(f *testing.F) {
	f.Add("a.b/c", `{"x":1}`)
	f.Add("a", "two\nlines\x00 =\"")
	f.Fuzz(func(t *testing.T, key, value string) {
		got, err := ParseAnnotations(fmt.Sprintf("%s=%q\n", key, value))
		if key == "" || strings.ContainsAny(key, "=\n") {
			return // no key of an annotation
		}
		if diff := cmp.Diff(map[string]string{key: value}, got); diff != "" || err != nil {
			t.Errorf("error %v (-want,+got)\n%s", err, diff)
		}
		if _, err := ParseAnnotations(value); err != nil && !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("error %q names no line", err)
		}
	})
}

func TestBesideItself(t *testing.T) {
	if _, err := os.Readlink("/proc/self/ns/mnt"); err != nil {
		t.Skip("no mount namespaces here: ", err)
	}
	root := os.DirFS("/")
	if !Beside(root, os.Getpid()) {
		t.Error("this process does not have its own mounts")
	}
	if Beside(root, 1<<22+1) {
		t.Error("a process that cannot be has the mounts of this one")
	}
}
