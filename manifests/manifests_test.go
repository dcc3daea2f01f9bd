// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"embed"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/config"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// objects strictly decodes every document of every manifest but kustomize's own.
func objects(t *testing.T) map[string][]runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsscheme.AddToScheme, v1alpha1.AddToScheme, poolv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	out := map[string][]runtime.Object{}
	for _, files := range []embed.FS{manifests.FS, manifests.Pools, manifests.UI} {
		read(t, files, cluster, out)
	}
	return out
}

func read(t *testing.T, files embed.FS, cluster runtime.Decoder, out map[string][]runtime.Object) {
	t.Helper()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Base(name) == "kustomization.yaml" {
			return err
		}
		switch path.Dir(name) {
		case "pools/alerts", // test/alerts has promtool read these
			"examples/profiles": // the scheduler's files; a test of pkg/cli/generate makes them again
			return nil
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		decoder := cluster
		if strings.HasPrefix(path.Base(name), "scheduler-config") {
			decoder = schedulerscheme.Codecs.UniversalDeserializer()
		}
		for doc := range strings.SplitSeq(string(data), "\n---\n") {
			obj, _, err := decoder.Decode([]byte(doc), nil, nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			out[name] = append(out[name], obj)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestManifests: every manifest is valid and assembled.
func TestManifests(t *testing.T) {
	files := objects(t)
	if len(files) < 18 {
		t.Errorf("only %d files", len(files))
	}
	named := map[string]bool{}
	for _, dir := range []string{"core", "base", "crd", "rbac", "policy", "flowcontrol", "network", "scheduler", "exporter", "node-agent", "examples", "pools", "examples/pools", "ui"} {
		var k struct {
			Resources          []string
			ConfigMapGenerator []struct{ Files []string }
		}
		data, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(data, &k); err != nil {
			t.Fatal(err)
		}
		for _, g := range k.ConfigMapGenerator {
			k.Resources = append(k.Resources, g.Files...)
		}
		for _, r := range k.Resources {
			if path.Ext(r) == "" { // a folder
				continue
			}
			named[path.Join(dir, r)] = true
		}
	}
	for name := range files {
		if strings.HasPrefix(name, fabricExamples) || strings.HasPrefix(name, poolExamples+"reference-") {
			continue // one of them is applied, by its name: they have the same names
		}
		if !named[name] {
			t.Errorf("%s is in no kustomization", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("a kustomization names %s, which is not there", name)
	}
}

// TestOutputKeys keeps the keys in the policies' CEL and those
// the scheduler writes the same.
func TestOutputKeys(t *testing.T) {
	policies, err := manifests.Policies()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range policies {
		for _, v := range p.Spec.Variables {
			if v.Name != "keys" {
				continue
			}
			checked++
			var got []string
			if err := yaml.Unmarshal([]byte(v.Expression), &got); err != nil { // a CEL list of strings is a YAML list
				t.Fatal(err)
			}
			want := []string{
				allocation.Key, allocation.GPUIDsKey, allocation.GPUIndicesKey, allocation.NUMANodeKey, allocation.CPUSetKey,
				allocation.LinkClassKey, allocation.RingBandwidthKey, allocation.DecisionKey,
			}
			want = append(append(want, gangrequest.OutputKeys()...), allocation.GPUIDsAlias, allocation.NUMANodeAlias)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-scheduler +policy):\n%s", p.Name, diff)
			}
			for _, key := range append(got, allocation.GPUIDsKey+".worker") {
				if !allocation.IsOutputKey(key) && !slices.Contains(gangrequest.OutputKeys(), key) {
					t.Errorf("the scheduler does not know %s for its own", key)
				}
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d policies list keys, want 2", checked)
	}
}

// TestShippedProfiles reads both configurations as kube-scheduler does.
func TestShippedProfiles(t *testing.T) {
	tests := map[string]struct {
		path      string
		wantWrite config.AnnotationWrite
	}{
		"the annotations are patched":        {manifests.SchedulerConfigPath, config.AnnotationWritePreBind},
		"the annotations are on the Binding": {manifests.SchedulerConfigBindingPath, config.AnnotationWriteBinding},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := options.LoadConfigFromFile(klog.FromContext(t.Context()), filepath.FromSlash(tc.path))
			if err != nil {
				t.Fatal(err)
			}
			if len(cfg.Profiles) != 1 || cfg.Profiles[0].SchedulerName != "topology-aware-scheduler" {
				t.Fatalf("profiles: %v", cfg.Profiles)
			}
			if got := cfg.LeaderElection.ResourceNamespace + "/" + cfg.LeaderElection.ResourceName; got != "nvtopo-system/nvtopo-scheduler" {
				t.Errorf("leader election by Lease %s", got)
			}
			weights := map[string]int32{}
			for _, p := range cfg.Profiles[0].Plugins.MultiPoint.Enabled {
				if p.Weight > 0 {
					weights[p.Name] = p.Weight
				}
			}
			want := map[string]int32{
				config.TopologyAwareName: 25, config.NUMAAffinityName: 3, "TaintToleration": 3, "NodeAffinity": 2, "InterPodAffinity": 2,
				"PodTopologySpread": 2, "DynamicResources": 2, "ImageLocality": 1, "NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1,
			}
			if diff := cmp.Diff(want, weights); diff != "" {
				t.Errorf("weights (-want +got):\n%s", diff)
			}
			var bind []string
			for _, p := range cfg.Profiles[0].Plugins.Bind.Enabled {
				bind = append(bind, p.Name)
			}
			if want := []string{config.TopologyAwareName, "DefaultBinder"}; !slices.Equal(bind, want) {
				t.Errorf("binders: %v, want %v", bind, want)
			}
			for _, p := range cfg.Profiles[0].PluginConfig {
				switch args := p.Args.(type) {
				case *config.TopologyAwareArgs:
					checkArgs(t, &args.CommonArgs, tc.wantWrite, config.ValidateTopologyAwareArgs(args))
				case *config.NUMAAffinityArgs:
					checkArgs(t, &args.CommonArgs, tc.wantWrite, config.ValidateNUMAAffinityArgs(args))
				}
			}
		})
	}
}

// TestDefaultSchedulerProfile: the second profile is the first, for pods that name no scheduler, and
// spreads the replicas of Services as kube-scheduler does.
func TestDefaultSchedulerProfile(t *testing.T) {
	load := func(path string) *schedulerconfig.KubeSchedulerConfiguration {
		t.Helper()
		cfg, err := options.LoadConfigFromFile(klog.FromContext(t.Context()), filepath.FromSlash(path))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	want, got := load(manifests.SchedulerConfigPath), load(manifests.SchedulerConfigDefaultPath)
	second := want.Profiles[0].DeepCopy()
	second.SchedulerName = v1.DefaultSchedulerName
	for i := range second.PluginConfig {
		if args, ok := second.PluginConfig[i].Args.(*schedulerconfig.PodTopologySpreadArgs); ok {
			args.DefaultingType, args.DefaultConstraints = schedulerconfig.SystemDefaulting, nil
		}
	}
	want.Profiles = append(want.Profiles, *second)
	byName := cmpopts.SortSlices(func(a, b schedulerconfig.PluginConfig) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(want, got, byName); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func checkArgs(t *testing.T, args *config.CommonArgs, wantWrite config.AnnotationWrite, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	if args.AnnotationWrite != wantWrite || args.LeaderLease.Name != "nvtopo-scheduler" {
		t.Errorf("annotations are written by %s, leader's Lease is %q", args.AnnotationWrite, args.LeaderLease.Name)
	}
}

// TestExamples: the examples can be scheduled. It reads the examples as the scheduler does.
func TestExamples(t *testing.T) {
	var args config.TopologyAwareArgs
	config.SetDefaults_TopologyAwareArgs(&args)
	count, gangs := 0, 0
	for name, list := range objects(t) {
		if !strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, fabricExamples) || strings.HasPrefix(name, poolExamples) {
			continue
		}
		pod, ok := podOf(list[0])
		if !ok {
			t.Errorf("%s is a %T", name, list[0])
			continue
		}
		count++
		request, err := podrequest.Parse(pod, &podrequest.Options{Resources: args.Resources, Supported: supported(t, &args)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !request.HasGPUs() || pod.Spec.SchedulerName != "topology-aware-scheduler" {
			t.Errorf("%s: asks for GPUs: %t, scheduler %q", name, request.HasGPUs(), pod.Spec.SchedulerName)
		}
		if want := name == "examples/cuda-visible-devices.yaml"; request.TrustsOutput != want {
			t.Errorf("%s: relies on the annotations: %t, want %t", name, request.TrustsOutput, want)
		}
		if key, ok := gangrequest.KeyOf(pod); ok {
			gangs++
			if gang := gangrequest.Read(key, nil, []*v1.Pod{pod}); gang.Err != nil || len(gang.Warnings) > 0 {
				t.Errorf("%s: gang %s: %v, warnings %q", name, key.Name, gang.Err, gang.Warnings)
			}
		}
	}
	if count != 8 || gangs != 3 {
		t.Errorf("%d examples, %d of them gangs, want 8 and 3", count, gangs)
	}
}

// TestWorkloadRoles: workloads fit their roles. It ties the Pods, accounts and grants together.
func TestWorkloadRoles(t *testing.T) {
	accounts, granted := map[string]bool{}, map[string]bool{}
	for _, list := range objects(t) {
		for _, obj := range list {
			switch o := obj.(type) {
			case *v1.ServiceAccount:
				accounts[o.Namespace+"/"+o.Name] = true
			case *rbacv1.ClusterRoleBinding:
				for _, subject := range o.Subjects {
					granted[subject.Namespace+"/"+subject.Name] = true
				}
			}
		}
	}
	want := map[string]bool{
		"nvtopo-system/nvtopo-scheduler": true, "nvtopo-system/nvtopo-exporter": true, "nvtopo-system/nvtopo-node-agent": true,
		"nvtopo-system/nvtopo-pool-controller": true, "nvtopo-system/nvtopo-ui": true,
		"nvtopo-system/nvtopo-what-if": true, // no pod's: people show its tokens to the scheduler
		"ml-workloads/night-window":    true, // an example's, which a Role suffices for
	}
	if diff := cmp.Diff(want, accounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	delete(want, "ml-workloads/night-window")
	// Who starts jobs and pods of tenants: Kueue, and the Job controller under one of two names, and that of JobSets.
	for _, other := range []string{"kueue-system/kueue-controller-manager", "kube-system/job-controller", "jobset-system/jobset-controller-manager", "/system:kube-controller-manager"} {
		want[other] = true
	}
	if diff := cmp.Diff(want, granted); diff != "" {
		t.Errorf("subjects of cluster roles (-want +got):\n%s", diff)
	}
	for _, list := range objects(t) {
		for _, obj := range list {
			var spec v1.PodSpec
			switch o := obj.(type) {
			case *appsv1.Deployment:
				spec = o.Spec.Template.Spec
			case *appsv1.DaemonSet:
				spec = o.Spec.Template.Spec
			default:
				continue
			}
			if !accounts["nvtopo-system/"+spec.ServiceAccountName] {
				t.Errorf("account %q is not among the manifests", spec.ServiceAccountName)
			}
			// The node agent has to be root and to see kubelet's folders: TestNodeAgentAccess.
			agent := spec.ServiceAccountName == "nvtopo-node-agent"
			if !agent && (len(spec.Volumes) > 1 || spec.SecurityContext.RunAsNonRoot == nil) || !confined(&spec) {
				t.Errorf("account %q has more rights on the node than it needs", spec.ServiceAccountName)
			}
		}
	}
}

// confined says that a pod shares no namespace of its node and none of its containers has a capability. It has one, and
// before it none but that which checks the scheduler's configuration, with what the scheduler has.
func confined(spec *v1.PodSpec) bool {
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.Name != "check-config" || c.Image != spec.Containers[0].Image || !slices.Equal(c.VolumeMounts, spec.Containers[0].VolumeMounts) || !powerless(c) {
			return false
		}
	}
	return len(spec.Containers) == 1 && len(spec.InitContainers) <= 1 && !spec.HostNetwork && !spec.HostPID && !spec.HostIPC &&
		spec.SecurityContext.SeccompProfile.Type == v1.SeccompProfileTypeRuntimeDefault && powerless(&spec.Containers[0])
}

// powerless says that a container has no capability and cannot get one.
func powerless(c *v1.Container) bool {
	security := c.SecurityContext
	return security != nil && security.Privileged == nil && *security.ReadOnlyRootFilesystem && !*security.AllowPrivilegeEscalation &&
		len(security.Capabilities.Add) == 0 && slices.Equal(security.Capabilities.Drop, []v1.Capability{"ALL"})
}
