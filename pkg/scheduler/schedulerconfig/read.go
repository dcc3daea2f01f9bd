// SPDX-License-Identifier: Apache-2.0

package schedulerconfig

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

const kind = "KubeSchedulerConfiguration"

// File is a parsed configuration.
type File struct {
	name    string
	written schedulerv1.KubeSchedulerConfiguration  // without defaults: its indices are the file's
	config  *schedconfig.KubeSchedulerConfiguration // defaulted and valid
}

// Read decodes, defaults and validates a configuration as kube-scheduler does. name is the file's name in
// errors, and own are the plugins that are not kube-scheduler's. An error is a *Fault.
func Read(name string, text []byte, own frameworkruntime.Registry) (*File, error) {
	f := &File{name: name}
	if fault := f.read(text, own); fault != nil {
		fault.file = name
		return nil, fault
	}
	return f, nil
}

func (f *File) read(text []byte, own frameworkruntime.Registry) *Fault {
	if fault := f.decode(text); fault != nil {
		return fault
	}
	if err := lifecycle.CheckPluginNames(text); err != nil {
		return faultf("%s", err)
	}
	problems := f.unknownPlugins(own)
	problems = append(problems, f.sameNames()...)
	if len(problems) == 0 { // kube-scheduler's message for the same fault is worse
		problems = append(problems, of(validation.ValidateKubeSchedulerConfiguration(f.config))...)
	}
	if problems = append(problems, f.arguments()...); len(problems) > 0 {
		return &Fault{problems: problems}
	}
	return nil
}

// decode decodes the text twice: as kube-scheduler does, and without defaults.
func (f *File) decode(text []byte) *Fault {
	document := map[string]any{}
	if err := yaml.Unmarshal(text, &document); err != nil {
		return faultf("%s", fieldpath.Words(err, nil))
	}
	if fault := checkKind(document); fault != nil {
		return fault
	}
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		decode := func(part map[string]any) error {
			text, err := yaml.Marshal(part)
			if err == nil {
				_, _, err = scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
			}
			return err
		}
		var problems []string
		for _, p := range fieldpath.Find(document, decode) {
			problems = append(problems, problem(document, p))
		}
		if len(problems) > 0 {
			return &Fault{problems: problems}
		}
		return faultf("%s", fieldpath.Words(err, nil))
	}
	cfg, ok := obj.(*schedconfig.KubeSchedulerConfiguration)
	if !ok {
		return faultf("kind: %T: want %s", obj, kind)
	}
	cfg.APIVersion = schedulerv1.SchemeGroupVersion.String() // kube-scheduler sets it, too
	f.config = cfg
	if err := yaml.Unmarshal(text, &f.written); err != nil {
		return faultf("%s", fieldpath.Words(err, nil))
	}
	return nil
}

// checkKind refuses a document that is no configuration of the scheduler.
func checkKind(document map[string]any) *Fault {
	version, _ := document["apiVersion"].(string)
	given, _ := document["kind"].(string)
	want := schedulerv1.SchemeGroupVersion.String()
	switch {
	case len(document) == 0:
		return faultf("the file is empty: want a %s of %s", kind, want)
	case given != kind:
		return faultf("kind: %q: want %s", given, kind)
	case version != want:
		return faultf("apiVersion: %q: want %s", version, want)
	}
	return nil
}

// unknownPlugins reports enabled plugins that the program does not have.
func (f *File) unknownPlugins(own frameworkruntime.Registry) (problems []string) {
	all := frameworkplugins.NewInTreeRegistry()
	maps.Copy(all, own)
	for i := range f.written.Profiles {
		for _, point := range points(f.written.Profiles[i].Plugins) {
			for j, p := range point.set.Enabled {
				if all[p.Name] != nil {
					continue
				}
				path := profile(i).Child("plugins", point.name, "enabled").Index(j).Child("name")
				near := nearest(p.Name, slices.Sorted(maps.Keys(all)))
				problems = append(problems, faultf("%s: %q: there is no such plugin%s; besides kube-scheduler's own there are %s",
					path, p.Name, near, strings.Join(slices.Sorted(maps.Keys(own)), ", ")).problems...)
			}
		}
	}
	return problems
}

// sameNames reports profiles with equal names.
func (f *File) sameNames() (problems []string) {
	first := map[string]int{} // schedulerName -> index
	for i := range f.config.Profiles {
		name := f.config.Profiles[i].SchedulerName
		if j, ok := first[name]; ok {
			problems = append(problems, faultf("%s: %q: is the name of profiles[%d], too", profile(i).Child("schedulerName"), name, j).problems...)
			continue
		}
		first[name] = i
	}
	return problems
}

// arguments reports faults in the arguments that kube-scheduler does not validate before it makes the
// plugin.
func (f *File) arguments() (problems []string) {
	for i := range f.config.Profiles {
		for j, c := range f.config.Profiles[i].PluginConfig {
			if !enables(f.config.Profiles[i].Plugins, c.Name) {
				continue // they have no effect, and the scheduler starts with them
			}
			path := profile(i).Child("pluginConfig").Index(j).Child("args")
			var err error
			switch args := c.Args.(type) {
			case *config.TopologyAwareArgs:
				err = below(path, config.ValidateTopologyAwareArgs(args))
			case *config.NUMAAffinityArgs:
				err = below(path, config.ValidateNUMAAffinityArgs(args))
			case *config.GangPlacementArgs:
				err = below(path, config.ValidateGangPlacementArgs(args))
			case *schedconfig.NodeResourcesFitArgs:
				err = validation.ValidateNodeResourcesFitArgs(path, args)
			}
			problems = append(problems, of(err)...)
		}
	}
	return problems
}

// enables reports whether some extension point enables the plugin.
func enables(p *schedconfig.Plugins, name string) bool {
	return slices.Contains(p.Names(), name) || slices.ContainsFunc(p.MultiPoint.Enabled, func(e schedconfig.Plugin) bool { return e.Name == name })
}

// below puts the fields of errors below a path.
func below(path *field.Path, err error) error {
	all, ok := errors.AsType[utilerrors.Aggregate](err)
	if !ok {
		return err
	}
	var out []error
	for _, e := range all.Errors() {
		if at, ok := errors.AsType[*field.Error](e); ok {
			moved := *at
			moved.Field = path.String() + "." + at.Field
			e = &moved
		}
		out = append(out, e)
	}
	return utilerrors.NewAggregate(out)
}

// of returns the problems of an error, each in one line.
func of(err error) (problems []string) {
	if err == nil {
		return nil
	}
	if all, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		if all == nil {
			return nil
		}
		for _, e := range utilerrors.Flatten(all).Errors() {
			problems = append(problems, fieldpath.OneLine(e.Error()))
		}
		return problems
	}
	return []string{fieldpath.OneLine(err.Error())}
}

// point is an extension point of a profile.
type point struct {
	name string
	set  *schedulerv1.PluginSet
}

// points returns the extension points of a profile, multiPoint first; p may be nil.
func points(p *schedulerv1.Plugins) []point {
	p = cmp.Or(p, &schedulerv1.Plugins{})
	return []point{
		{"multiPoint", &p.MultiPoint},
		{"preEnqueue", &p.PreEnqueue},
		{"queueSort", &p.QueueSort},
		{"preFilter", &p.PreFilter},
		{"filter", &p.Filter},
		{"postFilter", &p.PostFilter},
		{"preScore", &p.PreScore},
		{"score", &p.Score},
		{"reserve", &p.Reserve},
		{"permit", &p.Permit},
		{"preBind", &p.PreBind},
		{"bind", &p.Bind},
		{"postBind", &p.PostBind},
	}
}

func profile(i int) *field.Path { return field.NewPath("profiles").Index(i) }
