// SPDX-License-Identifier: Apache-2.0

package schedulerconfig

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
	"github.com/nvtopo/nvtopo/pkg/placement/podkeys"
)

// nearestField returns the known field that is nearest to the last one of an unknown path; empty if none
// is near.
func nearestField(document map[string]any, path string) string {
	beside, last := fieldsBeside(document, path)
	return nearest(last, beside)
}

// nearest returns the known name that is nearest to a name, as text.
func nearest(name string, known []string) string {
	if near := podkeys.Nearest(name, known); near != "" {
		return ", nearest is " + near
	}
	return ""
}

// fieldsBeside returns the fields of the mapping that has the last field of a path, and the name of that
// last field. There are none if the path leads nowhere.
func fieldsBeside(document map[string]any, path string) (fields []string, last string) {
	steps := strings.Split(path, ".")
	last = steps[len(steps)-1]
	t, in := reflect.TypeFor[schedulerv1.KubeSchedulerConfiguration](), document
	for _, step := range steps[:len(steps)-1] {
		name, index, _ := strings.Cut(step, "[")
		fieldType, ok := fieldsOf(t)[name]
		if !ok {
			return nil, last
		}
		if fieldType == reflect.TypeFor[runtime.RawExtension]() {
			plugin, _ := in["name"].(string)
			args, err := scheme.Scheme.New(schedulerv1.SchemeGroupVersion.WithKind(plugin + "Args"))
			if err != nil { // the decoder refuses the plugin's name itself
				return nil, last
			}
			fieldType = reflect.TypeOf(args)
		}
		value := in[name]
		if index != "" && fieldType.Kind() == reflect.Slice {
			all, _ := value.([]any)
			i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if err != nil || i < 0 || i >= len(all) {
				return nil, last
			}
			fieldType, value = fieldType.Elem(), all[i]
		}
		if fieldType.Kind() == reflect.Pointer {
			fieldType = fieldType.Elem()
		}
		t = fieldType
		in, _ = value.(map[string]any)
	}
	return slices.Sorted(maps.Keys(fieldsOf(t))), last
}

// fieldsOf returns the types of a struct's fields, by their names in a document.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return out
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			maps.Copy(out, fieldsOf(f.Type))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}

// problem returns the message about a field that cannot be decoded.
func problem(document map[string]any, p fieldpath.Problem) string {
	text := p.String()
	if strings.HasSuffix(text, ": "+fieldpath.NoField) {
		text += nearestField(document, p.Path)
	}
	return text
}
