// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

const namespace = "nvtopo-system"

// objects are the objects of an installation, by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// helm runs Helm's program, and returns its output and its complaints.
func helm(t *testing.T, args ...string) (stdout, stderr []byte, err error) {
	t.Helper()
	path := filepath.Join(testkit.Bin(), "helm")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("Helm is not built (make bin/helm): %v", err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	// The user's configuration is not read, and nothing is left behind.
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "HELM_NAMESPACE="+namespace)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = cmd.Run()
	return out.Bytes(), complaints.Bytes(), err
}

// folder returns the chart's folder.
func folder() string { return filepath.Join(testkit.Repository(), "charts", "nvtopo") }

// values writes values to a file for Helm.
func values(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// render renders the chart with Helm.
func render(t *testing.T, text string) objects {
	t.Helper()
	out, complaints, err := helm(t, "template", "nvtopo", folder(), "--values", values(t, text))
	if err != nil || len(complaints) > 0 {
		t.Fatalf("helm template: %v\n%s", err, complaints)
	}
	return decode(t, out)
}

// kustomize builds a folder of manifests.
func kustomize(t *testing.T, folder string) objects {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(testkit.Repository(), "manifests", folder))
	if err != nil {
		t.Fatal(err)
	}
	out := objects{}
	for _, r := range built.Resources() {
		fields, err := r.Map() // its text has extra empty lines in folded text
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(text, &o.Object); err != nil { // with the number types of decode
			t.Fatal(err)
		}
		out[key(o)] = o
	}
	return out
}

func decode(t *testing.T, text []byte) objects {
	t.Helper()
	out := objects{}
	dec := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)+1)
	for {
		o := &unstructured.Unstructured{}
		err := dec.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue // only comments
		}
		if out[key(o)] != nil {
			t.Fatalf("two objects are %s", key(o))
		}
		out[key(o)] = o
	}
}

// field returns a field of an object; the path's steps are keys, separated by slashes.
func field(t *testing.T, o *unstructured.Unstructured, path string) any {
	t.Helper()
	var v any = o.Object
	for step := range strings.SplitSeq(path, "/") {
		step = strings.ReplaceAll(step, "~", "/") // as in the names of annotations
		if list, ok := v.([]any); ok {
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(list) {
				return nil
			}
			v = list[i]
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[step]
	}
	return v
}
