// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// optional makes edits of a kustomize component's additions to one object; the chart has them if a value
// is true.
func optional(manifests fs.FS, component, value string) ([]edit, error) {
	name := path.Join("components", component, "kustomization.yaml")
	data, err := fs.ReadFile(manifests, name)
	if err != nil {
		return nil, fmt.Errorf("read a component: %w", err)
	}
	var file struct{ Patches []struct{ Patch string } }
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(file.Patches) != 1 {
		return nil, fmt.Errorf("%s has %d patches, want 1", name, len(file.Patches))
	}
	var operations []struct {
		Op, Path string
		Value    yaml.Node
	}
	if err := yaml.Unmarshal([]byte(file.Patches[0].Patch), &operations); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []edit
	for _, o := range operations {
		e, err := added(o.Op, o.Path, &o.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		e.text = "{{- if " + value + " }}\n" + e.text + "\n{{- end }}"
		out = append(out, e)
	}
	return out, nil
}

// added returns the edit that adds an item to a list.
func added(op, pointer string, value *yaml.Node) (edit, error) {
	e := edit{path: strings.TrimPrefix(pointer, "/"), where: after}
	switch _, item := path.Split(e.path); {
	case op != "add":
		return edit{}, errors.New("operation " + op + " is not add")
	case item == "0":
		e.where = before
	case item != last:
		return edit{}, errors.New(pointer + " is neither the beginning nor the end of a list")
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return edit{}, fmt.Errorf("write the value of %s: %w", pointer, err)
	}
	e.text = "- " + strings.TrimSpace(string(text))
	return e, nil
}
