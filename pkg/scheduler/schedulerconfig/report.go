// SPDX-License-Identifier: Apache-2.0

package schedulerconfig

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/runtime"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulerprofile "k8s.io/kubernetes/pkg/scheduler/profile"
)

// Report describes the scheduler that a configuration makes.
type Report struct {
	File     string    `json:"file"`
	Profiles []Profile `json:"profiles"`
	// Notes are about settings that have no effect.
	Notes []string `json:"notes,omitempty"`
}

// Profile is one profile with all its defaults.
type Profile struct {
	SchedulerName string `json:"schedulerName"`
	QueueSort     string `json:"queueSort"`
	// Plugins are those that are not kube-scheduler's own.
	Plugins []Plugin `json:"plugins,omitempty"`
	// Scores are the weights of all scoring plugins, by name.
	Scores map[string]int32 `json:"scores,omitempty"`
}

// Plugin is one plugin of a profile.
type Plugin struct {
	Name   string         `json:"name"`
	Weight int32          `json:"weight,omitempty"` // of its score; 0: it does not score
	Args   runtime.Object `json:"args,omitempty"`   // with their defaults
}

func (f *File) report(completed []schedconfig.KubeSchedulerProfile, made schedulerprofile.Map, own frameworkruntime.Registry) *Report {
	r := &Report{File: f.name}
	for i := range completed {
		p := &completed[i]
		enabled := made[p.SchedulerName].ListPlugins()
		out := Profile{SchedulerName: p.SchedulerName, Scores: map[string]int32{}}
		for _, s := range enabled.QueueSort.Enabled {
			out.QueueSort = s.Name
		}
		for _, s := range enabled.Score.Enabled {
			out.Scores[s.Name] = s.Weight
		}
		names := allNames(enabled)
		for _, name := range names {
			if own[name] != nil {
				out.Plugins = append(out.Plugins, Plugin{Name: name, Weight: out.Scores[name], Args: argsOf(p, name)})
			}
		}
		r.Profiles = append(r.Profiles, out)
		r.Notes = append(r.Notes, f.idle(i, names)...)
	}
	return r
}

func allNames(enabled *schedconfig.Plugins) []string {
	return slices.Compact(slices.Sorted(slices.Values(enabled.Names())))
}

func argsOf(p *schedconfig.KubeSchedulerProfile, name string) runtime.Object {
	i := slices.IndexFunc(p.PluginConfig, func(c schedconfig.PluginConfig) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return p.PluginConfig[i].Args
}

// idle returns notes about arguments of plugins that the profile does not enable.
func (f *File) idle(i int, enabled []string) (notes []string) {
	if i >= len(f.written.Profiles) {
		return nil
	}
	for j, c := range f.written.Profiles[i].PluginConfig {
		if !slices.Contains(enabled, c.Name) {
			notes = append(notes, fmt.Sprintf("%s: the profile does not enable %s, so these arguments have no effect", profile(i).Child("pluginConfig").Index(j), c.Name))
		}
	}
	return notes
}

// shown are the arguments in the table; the other formats have all.
var shown = map[string][]string{
	"TopologyAware": {"bandwidthWeight", "latencyWeight", "fragmentationWeight", "defaultPolicy", "annotationWrite"},
	"NUMAAffinity":  {"sameNUMABonus", "crossNUMAPenalty", "defaultAffinity"},
	"GangPlacement": {"scheduleTimeout", "drainAfter"},
}

// Print writes the report for people.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PROFILE\tPLUGIN\tWEIGHT\tARGUMENTS")
	for i := range r.Profiles {
		p := &r.Profiles[i]
		name := p.SchedulerName
		for _, plugin := range p.Plugins {
			weight := "-"
			if plugin.Weight != 0 {
				weight = strconv.Itoa(int(plugin.Weight))
			}
			args, err := argumentsText(&plugin)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, plugin.Name, weight, args)
			name = ""
		}
		fmt.Fprintf(w, "%s\tof kube-scheduler\t\t%s\n", name, othersText(p))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, note := range r.Notes {
		if _, err := fmt.Fprintf(out, "%s: note: %s\n", r.File, note); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%s: nvtopo-scheduler would start with this configuration\n", r.File)
	return err
}

func argumentsText(p *Plugin) (string, error) {
	if p.Args == nil || len(shown[p.Name]) == 0 {
		return "-", nil
	}
	raw, err := json.Marshal(p.Args)
	if err != nil {
		return "", fmt.Errorf("writing the arguments of %s: %w", p.Name, err)
	}
	all := map[string]any{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return "", fmt.Errorf("reading the arguments of %s: %w", p.Name, err)
	}
	var parts []string
	for _, name := range shown[p.Name] {
		parts = append(parts, fmt.Sprintf("%s %v", name, all[name]))
	}
	return strings.Join(parts, ", "), nil
}

// othersText returns the weights of kube-scheduler's own scorers.
func othersText(p *Profile) string {
	ours := map[string]bool{}
	for _, plugin := range p.Plugins {
		ours[plugin.Name] = true
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(p.Scores)) {
		if !ours[name] {
			parts = append(parts, fmt.Sprintf("%s %d", name, p.Scores[name]))
		}
	}
	if len(parts) == 0 {
		return "no scores"
	}
	return "weights " + strings.Join(parts, ", ")
}
