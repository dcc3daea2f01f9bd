// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ErrNotKnown is in errors about a property that the graph of the machine lacks.
var ErrNotKnown = errors.New("the input does not say it")

// document returns the YAML of an API object, below comments. Fields that are zero are left out, as if
// their API had omitempty, except below the keys in whole.
func document(comment []string, object any, whole ...string) ([]byte, error) {
	data, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	withoutZero(fields, whole)
	if data, err = yaml.Marshal(fields); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	var b bytes.Buffer
	for _, line := range comment {
		b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	b.Write(data)
	return b.Bytes(), nil
}

// withoutZero removes the zero values of a decoded object. false stays: a bool without omitempty is a
// pointer that was set.
func withoutZero(fields map[string]any, whole []string) {
	for key, value := range fields {
		if slices.Contains(whole, key) {
			continue
		}
		if isZero(value, whole) {
			delete(fields, key)
		}
	}
}

// isZero reports whether a decoded value is empty after its own zero values are removed.
func isZero(value any, whole []string) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		withoutZero(v, whole)
		return len(v) == 0
	case []any:
		for _, item := range v {
			isZero(item, whole) // an item keeps its place
		}
		return len(v) == 0
	case string:
		return v == "" || v == "0" || v == "0s"
	case float64:
		return v == 0
	}
	return false
}
