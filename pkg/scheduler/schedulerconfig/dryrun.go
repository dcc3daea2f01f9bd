// SPDX-License-Identifier: Apache-2.0

package schedulerconfig

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/whatif/memoryapi"
)

// Plugins makes the plugins that are not kube-scheduler's own.
type Plugins func(shared *lifecycle.Shared) frameworkruntime.Registry

// DryRun makes the scheduler of a configuration, with all its plugins, over an API server in memory
// without objects, and returns a report of it. Run it in a process of its own: kube-scheduler's metrics
// are one per process. All that it starts ends with ctx. If the scheduler would not start, the error is a
// *Fault.
func (f *File) DryRun(ctx context.Context, plugins Plugins) (*Report, error) {
	store, err := memoryapi.NewStore(nil)
	if err != nil {
		return nil, err
	}
	api := memoryapi.Serve(ctx, store)
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("client for the API server in memory: %w", err)
	}
	shared := lifecycle.NewShared(clock.RealClock{})
	shared.ServeDebug(func(context.Context, fwk.Handle, lifecycle.Debug, *nodestate.State) error { return nil })
	own := plugins(shared)
	var completed []schedconfig.KubeSchedulerProfile
	made, err := scheduler.New(ctx, client, scheduler.NewInformerFactory(client, 0), nil,
		func(string) events.EventRecorder { return &events.FakeRecorder{} },
		scheduler.WithComponentConfigVersion(f.config.APIVersion),
		scheduler.WithKubeConfig(api),
		scheduler.WithProfiles(f.config.Profiles...),
		scheduler.WithPercentageOfNodesToScore(f.config.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(own),
		scheduler.WithPodMaxBackoffSeconds(f.config.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(f.config.PodInitialBackoffSeconds),
		scheduler.WithExtenders(f.config.Extenders...),
		scheduler.WithParallelism(f.config.Parallelism),
		scheduler.WithBuildFrameworkCapturer(func(p schedconfig.KubeSchedulerProfile) { completed = append(completed, p) }),
	)
	if err != nil {
		return nil, f.Located(err)
	}
	return f.report(completed, made.Profiles, own), nil
}

var (
	// ofProfile, ofPlugin and ofPoint match the errors of kube-scheduler and these plugins about the part of
	// a configuration that keeps the scheduler from starting.
	ofProfile = regexp.MustCompile(`(?s)^.*?creating profile for scheduler name (\S+): (.*)$`)
	ofPlugin  = regexp.MustCompile(`(?s)^initializing plugin "([^"]+)": (.*)$`)
	ofPoint   = regexp.MustCompile(`(?s)^.*?profile (\S+): (.*)$`)
)

// Located puts the file and, if err names a profile, its field before the fault that kept the scheduler
// from starting. Other errors are returned unchanged.
func (f *File) Located(err error) error {
	text := err.Error()
	m := ofProfile.FindStringSubmatch(text)
	if m == nil {
		m = ofPoint.FindStringSubmatch(text)
	}
	if m == nil {
		return err
	}
	i := slices.IndexFunc(f.config.Profiles, func(p schedconfig.KubeSchedulerProfile) bool { return p.SchedulerName == m[1] })
	if i < 0 {
		return err
	}
	first, _, _ := strings.Cut(m[2], "\n")
	// Plugins with the same check report the same error.
	path, text := profile(i).String(), strings.ReplaceAll(m[2], "\nprofile "+m[1]+": "+first, "")
	if plugin := ofPlugin.FindStringSubmatch(text); plugin != nil {
		name := plugin[1]
		text = name + ": " + plugin[2]
		given := f.config.Profiles[i].PluginConfig
		written := 0
		if i < len(f.written.Profiles) {
			written = len(f.written.Profiles[i].PluginConfig)
		}
		if j := slices.IndexFunc(given, func(c schedconfig.PluginConfig) bool { return c.Name == name }); j >= 0 && j < written {
			path = profile(i).Child("pluginConfig").Index(j).String()
		}
	}
	fault := faultf("%s: %s", path, text)
	fault.file = f.name
	return fault
}
