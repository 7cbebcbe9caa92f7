package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/utils/ptr"

	"hanse.test/clients/check"
)

const (
	releaseName = "drift"
	manager     = "helm"
)

// helm is helm's library, used as controllers of releases use it: a release is upgraded when what is there is not what it
// wrote, which a dry run of server-side apply tells.
type helm struct {
	namespace string
	chart     *chart.Chart
	actions   *action.Configuration
}

func newHelm(namespace, set string) *helm {
	settings := cli.New()
	settings.SetNamespace(namespace)
	settings.QPS, settings.BurstLimit = 1000, 1000
	kube.ManagedFieldsManager = manager
	actions := action.NewConfiguration()
	must(actions.Init(settings.RESTClientGetter(), namespace, "secret"))
	made := &chart.Chart{
		Metadata:  &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "drift", Version: "1.0.0"},
		Templates: []*common.File{{Name: "templates/set.yaml", Data: []byte(set)}},
	}
	return &helm{namespace: namespace, chart: made, actions: actions}
}

func (h *helm) round(t *check.T) check.Round {
	released, err := action.NewGet(h.actions).Run(releaseName)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		install := action.NewInstall(h.actions)
		install.ReleaseName, install.Namespace, install.WaitStrategy = releaseName, h.namespace, kube.HookOnlyStrategy
		_, err := install.RunWithContext(t.Context(), h.chart, nil)
		t.Must(err, "install")
		return check.Round{Written: []string{"the release"}, Missing: "it was made just now"}
	}
	t.Must(err, "get the release")
	kept, ok := released.(*release.Release)
	t.Want(ok, "a release, not %T", released)
	objects, err := h.actions.KubeClient.Build(bytes.NewBufferString(kept.Manifest), false)
	t.Must(err, "read the manifest")
	var done check.Round
	for _, info := range objects {
		if h.differs(t, info) {
			done.Written = append(done.Written, info.ObjectName())
		}
	}
	if len(done.Written) > 0 {
		upgrade := action.NewUpgrade(h.actions)
		upgrade.Namespace, upgrade.WaitStrategy, upgrade.MaxHistory = h.namespace, kube.HookOnlyStrategy, 5
		upgrade.ServerSideApply, upgrade.ForceConflicts = "true", true
		_, err := upgrade.RunWithContext(t.Context(), releaseName, h.chart, nil)
		t.Must(err, "upgrade")
	}
	waiter, err := h.actions.KubeClient.GetWaiter(kube.StatusWatcherStrategy)
	t.Must(err, "make a waiter")
	if err := waiter.Wait(objects, 3*time.Second); err != nil {
		done.Missing = err.Error()
	}
	return done
}

// differs: would applying it again change anything.
func (h *helm) differs(t *check.T, info *resource.Info) bool {
	helper := resource.NewHelper(info.Client, info.Mapping)
	live, err := helper.Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		return true
	}
	t.Must(err, "get %s", info.ObjectName())
	wanted, err := json.Marshal(h.marked(t, info.Object))
	t.Must(err, "write %s", info.ObjectName())
	applied, err := helper.DryRun(true).Patch(info.Namespace, info.Name, types.ApplyPatchType, wanted, &metav1.PatchOptions{FieldManager: manager, Force: ptr.To(true)})
	t.Must(err, "dry-run %s", info.ObjectName())
	return !apiequality.Semantic.DeepEqual(content(t, live), content(t, applied))
}

// marked: with what helm puts on all objects of a release.
func (h *helm) marked(t *check.T, object runtime.Object) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	t.Must(err, "read")
	marked := &unstructured.Unstructured{Object: fields}
	labels, annotations := marked.GetLabels(), marked.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["app.kubernetes.io/managed-by"] = "Helm"
	annotations["meta.helm.sh/release-name"], annotations["meta.helm.sh/release-namespace"] = releaseName, h.namespace
	marked.SetLabels(labels)
	marked.SetAnnotations(annotations)
	return marked
}

// content is all that a person wrote, or could have.
func content(t *check.T, object runtime.Object) map[string]any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	t.Must(err, "read")
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(fields, "metadata", field)
	}
	delete(fields, "status")
	return fields
}
