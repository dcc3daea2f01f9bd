// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

var (
	// objectField matches a line that every Kubernetes object in YAML has, and no
	// output of nvidia-smi has.
	objectField = regexp.MustCompile(`(?m)^(apiVersion|kind|metadata|spec):`)
	// document matches the separator of YAML documents.
	document = regexp.MustCompile(`(?m)^---\s*$`)
)

// looksLikeObject distinguishes a Kubernetes object from nvidia-smi's text.
func looksLikeObject(data []byte) bool {
	return isJSON(data) || objectField.Match(data)
}

func isJSON(data []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) }

// configMapKind is the kind of a ConfigMap.
const configMapKind = "ConfigMap"

// kindOf returns the kind of an object; empty if it cannot be read, which its decoder will report.
func kindOf(data []byte) string {
	var head struct {
		Kind string `json:"kind"`
	}
	if yaml.Unmarshal(data, &head) != nil {
		return ""
	}
	return head.Kind
}

// decodeObject reads one NodeGPUTopology.
func decodeObject(data []byte) (*v1alpha1.NodeGPUTopology, error) {
	obj := &v1alpha1.NodeGPUTopology{}
	if err := decodeAs(data, v1alpha1.Kind, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

// decodeAs reads one object of a kind of nvtopo's. Unknown fields are errors, because they are spelling
// mistakes.
func decodeAs(data []byte, kind string, into any) error {
	asJSON := isJSON(data)
	if !asJSON {
		if n := countDocuments(data); n > 1 {
			return fmt.Errorf("%d YAML documents, want one %s", n, kind)
		}
		var err error
		if data, err = yaml.YAMLToJSONStrict(data); err != nil {
			return fmt.Errorf("not YAML: %w", err)
		}
	}
	// The kind is checked first: a List has other fields, and "unknown field items" would not be the real
	// fault.
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return located(data, err, asJSON)
	}
	if want := v1alpha1.SchemeGroupVersion.String(); head.Kind != kind || head.APIVersion != want {
		return fmt.Errorf("kind %q of apiVersion %q, want one %s of %s", head.Kind, head.APIVersion, kind, want)
	}
	if err := fieldpath.Decode(data, into); err != nil {
		return located(data, err, asJSON)
	}
	return nil
}

// countDocuments counts the YAML documents that are not empty.
func countDocuments(data []byte) int {
	n := 0
	for _, d := range document.Split(string(data), -1) {
		if objectField.MatchString(d) {
			n++
		}
	}
	return n
}

// located adds line and column to an error of encoding/json. If the JSON was made from
// YAML, its offsets would mislead and are left out.
func located(data []byte, err error, asJSON bool) error {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	var fields *fieldpath.Error
	offset := int64(-1)
	switch {
	case errors.As(err, &mistyped):
		if offset = mistyped.Offset; !errors.As(err, &fields) {
			err = errors.New(fieldpath.Words(mistyped, nil))
		}
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.Is(err, io.ErrUnexpectedEOF):
		offset = int64(len(data))
	}
	if !asJSON || offset < 0 || offset > int64(len(data)) {
		return err
	}
	before := data[:offset]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fmt.Errorf("line %d, column %d: %w", line, max(column, 1), err)
}
