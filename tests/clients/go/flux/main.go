// Flux runs the resource manager of Flux: staged server-side apply, drift detection by dry run, waiting, pruning.
package main

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"hanse.test/clients/check"
)

//go:embed set.yaml
var set string

// world is what every check needs.
type world struct {
	client  client.Client
	manager *ssa.ResourceManager
	name    string
}

func main() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	w, err := newWorld()
	if err != nil {
		panic(err)
	}
	suite := &check.Suite{}
	suite.Run("a set is applied in stages", w.applyStaged)
	suite.Run("applying it again changes nothing", w.applyAgain)
	suite.Run("a dry run sees no drift", w.noDrift)
	suite.Run("a dry run sees what an apply would change", w.diffOfChange)
	suite.Run("drift is found and corrected", w.correctDrift)
	suite.Run("a field of another manager is left alone", w.foreignField)
	suite.Run("fields of kubectl are taken over", w.takeOver)
	suite.Run("what is no longer applied goes from an object", w.removeField)
	suite.Run("an immutable change is refused, and forced by making anew", w.force)
	suite.Run("a bad object is refused by the dry run", w.refused)
	suite.Run("objects are waited for until they are ready", w.wait)
	suite.Run("what left the inventory is pruned", w.prune)
	suite.Run("the whole set is deleted", w.deleteAll)
	suite.Exit()
}

func newWorld() (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", check.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(direct, mapper, polling.Options{})
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	return &world{client: direct, manager: ssa.NewResourceManager(direct, poller, owner), name: check.Unique("clients-flux")}, nil
}

// objects is the set as it stands in the source, as Flux reads it.
func (w *world) objects(t *check.T) []*unstructured.Unstructured {
	objects, err := utils.ReadObjects(strings.NewReader(strings.ReplaceAll(set, "NAME", w.name)))
	t.Must(err, "read the set")
	t.Must(normalize.UnstructuredList(objects), "normalize the set")
	w.manager.SetOwnerLabels(objects, "loop", w.name)
	return objects
}

func (w *world) object(t *check.T, kind, name string) *unstructured.Unstructured {
	for _, object := range w.objects(t) {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Failf("no %s %s in the set", kind, name)
	return nil
}

func (w *world) live(t *check.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	t.Must(w.client.Get(t.Context(), client.ObjectKeyFromObject(object), live), "get %s", utils.FmtUnstructured(object))
	return live
}

func options() ssa.ApplyOptions {
	options := ssa.DefaultApplyOptions()
	options.WaitInterval, options.WaitTimeout = 200*time.Millisecond, 20*time.Second
	options.Cleanup = ssa.ApplyCleanupOptions{FieldManagers: []ssa.FieldManager{
		{Name: "kubectl", OperationType: "Apply"}, {Name: "kubectl", OperationType: "Update"}}}
	return options
}

// all demands that every object met the same action.
func all(t *check.T, changes *ssa.ChangeSet, wanted ssa.Action, count int) {
	for _, entry := range changes.Entries {
		t.Want(entry.Action == wanted, "%s %s, not %s", entry.Subject, wanted, entry.Action)
	}
	t.Want(len(changes.Entries) == count, "%d objects, not %d", count, len(changes.Entries))
}

func (w *world) applyStaged(t *check.T) {
	objects := w.objects(t)
	changes, err := w.manager.ApplyAllStaged(t.Context(), objects, options())
	t.Must(err, "apply")
	all(t, changes, ssa.CreatedAction, len(objects))
	tempo, _, _ := unstructured.NestedInt64(w.live(t, w.object(t, "Tune", "first")).Object, "spec", "tempo")
	t.Want(tempo == 120, "a default in the custom resource, not %d", tempo)
}

func (w *world) applyAgain(t *check.T) {
	objects := w.objects(t)
	before := map[string]string{}
	for _, object := range objects {
		before[utils.FmtUnstructured(object)] = w.live(t, object).GetResourceVersion()
	}
	changes, err := w.manager.ApplyAllStaged(t.Context(), objects, options())
	t.Must(err, "apply")
	all(t, changes, ssa.UnchangedAction, len(objects))
	for _, object := range w.objects(t) {
		subject := utils.FmtUnstructured(object)
		t.Want(w.live(t, object).GetResourceVersion() == before[subject], "%s at the same version", subject)
	}
}

func (w *world) noDrift(t *check.T) {
	for _, object := range w.objects(t) {
		entry, _, _, err := w.manager.Diff(t.Context(), object, ssa.DefaultDiffOptions())
		t.Must(err, "diff %s", utils.FmtUnstructured(object))
		t.Want(entry.Action == ssa.UnchangedAction, "%s unchanged, not %s", entry.Subject, entry.Action)
	}
}

func (w *world) diffOfChange(t *check.T) {
	changed := w.object(t, "Deployment", "web")
	t.Must(unstructured.SetNestedField(changed.Object, int64(5), "spec", "replicas"), "change")
	entry, live, merged, err := w.manager.Diff(t.Context(), changed, ssa.DefaultDiffOptions())
	t.Must(err, "diff")
	t.Want(entry.Action == ssa.ConfiguredAction, "configured, not %s", entry.Action)
	before, _, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	after, _, _ := unstructured.NestedInt64(merged.Object, "spec", "replicas")
	t.Want(before == 2 && after == 5, "2 and 5 replicas, not %d and %d", before, after)

	added := w.object(t, "ConfigMap", "settings")
	added.SetName("new")
	entry, _, _, err = w.manager.Diff(t.Context(), added, ssa.DefaultDiffOptions())
	t.Must(err, "diff")
	t.Want(entry.Action == ssa.CreatedAction, "created, not %s", entry.Action)
}

// meddle changes a live object as another client would.
func (w *world) meddle(t *check.T, manager string, object *unstructured.Unstructured, patch string) {
	raw := client.RawPatch("application/merge-patch+json", []byte(patch))
	t.Must(w.client.Patch(t.Context(), object.DeepCopy(), raw, client.FieldOwner(manager)), "meddle")
}

func (w *world) correctDrift(t *check.T) {
	for _, drift := range []struct{ kind, name, patch string }{
		{"Deployment", "web", `{"spec":{"replicas":9}}`},
		{"ConfigMap", "settings", `{"data":{"volume":"quiet"}}`},
		{"Service", "web", `{"spec":{"selector":{"app":"other"}}}`},
		{"Secret", "login", `{"data":{"password":"Z3Vlc3NlZA=="}}`},
		{"Tune", "first", `{"spec":{"key":"D"}}`},
		{"RoleBinding", "players", `{"subjects":[]}`},
	} {
		object := w.object(t, drift.kind, drift.name)
		w.meddle(t, "somebody", object, drift.patch)
		entry, _, _, err := w.manager.Diff(t.Context(), object, ssa.DefaultDiffOptions())
		t.Must(err, "diff")
		t.Want(entry.Action == ssa.ConfiguredAction, "drift of %s seen, not %s", entry.Subject, entry.Action)
		entry, err = w.manager.Apply(t.Context(), object, options())
		t.Must(err, "apply")
		t.Want(entry.Action == ssa.ConfiguredAction, "%s corrected, not %s", entry.Subject, entry.Action)
		entry, _, _, err = w.manager.Diff(t.Context(), w.object(t, drift.kind, drift.name), ssa.DefaultDiffOptions())
		t.Must(err, "diff")
		t.Want(entry.Action == ssa.UnchangedAction, "no drift of %s left, not %s", entry.Subject, entry.Action)
	}
}

func (w *world) foreignField(t *check.T) {
	object := w.object(t, "ConfigMap", "settings")
	w.meddle(t, "somebody", object, `{"data":{"extra":"mine"}}`)
	entry, err := w.manager.Apply(t.Context(), object, options())
	t.Must(err, "apply")
	t.Want(entry.Action == ssa.UnchangedAction, "unchanged, not %s", entry.Action)
	extra, _, _ := unstructured.NestedString(w.live(t, object).Object, "data", "extra")
	t.Want(extra == "mine", "the other's key kept")
}

func (w *world) takeOver(t *check.T) {
	object := w.object(t, "ConfigMap", "settings")
	w.meddle(t, "kubectl-edit", object, `{"data":{"volume":"quiet","typed":"by hand"}}`)
	takeover := options()
	takeover.Cleanup.FieldManagers = []ssa.FieldManager{{Name: "kubectl", OperationType: "Update"}}
	entry, err := w.manager.Apply(t.Context(), object, takeover)
	t.Must(err, "apply")
	t.Want(entry.Action == ssa.ConfiguredAction, "configured, not %s", entry.Action)
	live := w.live(t, object)
	data, _, _ := unstructured.NestedStringMap(live.Object, "data")
	_, kept := data["typed"]
	t.Want(data["volume"] == "loud" && !kept, "what was typed by hand undone, not %v", data)
	for _, manager := range live.GetManagedFields() {
		t.Want(!strings.HasPrefix(manager.Manager, "kubectl"), "no fields of kubectl left")
	}
}

func (w *world) removeField(t *check.T) {
	object := w.object(t, "Deployment", "web")
	annotated := object.DeepCopy()
	annotated.SetAnnotations(map[string]string{"note": "for a while"})
	_, err := w.manager.Apply(t.Context(), annotated, options())
	t.Must(err, "apply more")
	t.Want(w.live(t, object).GetAnnotations()["note"] != "", "the annotation")
	_, err = w.manager.Apply(t.Context(), object, options())
	t.Must(err, "apply less")
	t.Want(w.live(t, object).GetAnnotations()["note"] == "", "the annotation gone")
}

func (w *world) force(t *check.T) {
	object := w.object(t, "ConfigMap", "settings")
	object.SetName("fixed")
	t.Must(unstructured.SetNestedField(object.Object, true, "immutable"), "change")
	_, err := w.manager.Apply(t.Context(), object.DeepCopy(), options())
	t.Must(err, "apply")
	before := w.live(t, object).GetUID()
	t.Must(unstructured.SetNestedField(object.Object, "quiet", "data", "volume"), "change")
	_, err = w.manager.Apply(t.Context(), object.DeepCopy(), options())
	t.Want(err != nil && strings.Contains(err.Error(), "immutable"), "a refusal, not %v", err)
	forced := options()
	forced.Force = true
	entry, err := w.manager.Apply(t.Context(), object, forced)
	t.Must(err, "force")
	t.Want(entry.Action == ssa.CreatedAction && w.live(t, object).GetUID() != before, "made anew, not %s", entry.Action)
}

func (w *world) refused(t *check.T) {
	object := w.object(t, "Deployment", "web")
	object.SetName("bad")
	t.Must(unstructured.SetNestedField(object.Object, int64(-1), "spec", "replicas"), "change")
	_, err := w.manager.ApplyAll(t.Context(), append(w.objects(t), object), options())
	t.Want(err != nil && strings.Contains(err.Error(), "spec.replicas"), "the field named, not %v", err)

	nowhere := w.object(t, "ConfigMap", "settings")
	nowhere.SetNamespace(w.name + "-nowhere")
	_, err = w.manager.Apply(t.Context(), nowhere, options())
	t.Want(err != nil && strings.Contains(err.Error(), "not found"), "the namespace missed, not %v", err)
}

func (w *world) wait(t *check.T) {
	objects := []*unstructured.Unstructured{w.object(t, "Deployment", "web"), w.object(t, "Tune", "first"),
		w.object(t, "Service", "web"), w.object(t, "CustomResourceDefinition", "tunes."+w.name+".hanse.test")}
	wait := ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: time.Second}
	w.status(t, "Tune", "first", `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"False"}]}}`)
	err := w.manager.Wait(objects, wait)
	t.Want(err != nil && strings.Contains(err.Error(), "Deployment/"+w.name+"/web"), "a Deployment that is not ready, not %v", err)

	generation := w.live(t, objects[0]).GetGeneration()
	w.status(t, "Deployment", "web", fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":2,"updatedReplicas":2,"readyReplicas":2,
		"availableReplicas":2,"conditions":[{"type":"Available","status":"True"},
		{"type":"Progressing","status":"True","reason":"NewReplicaSetAvailable"}]}}`, generation))
	tune := w.live(t, objects[1]).GetGeneration()
	w.status(t, "Tune", "first", fmt.Sprintf(`{"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":"True"}]}}`, tune))
	wait.Timeout = 20 * time.Second
	t.Must(w.manager.Wait(objects, wait), "wait")
}

// status writes what a controller would.
func (w *world) status(t *check.T, kind, name, patch string) {
	object := w.object(t, kind, name)
	raw := client.RawPatch("application/merge-patch+json", []byte(patch))
	t.Must(w.client.Status().Patch(t.Context(), object, raw), "write the status of %s", utils.FmtUnstructured(object))
}

func (w *world) prune(t *check.T) {
	var stale []*unstructured.Unstructured
	for _, name := range []string{"settings", "fixed"} {
		object := w.object(t, "ConfigMap", "settings")
		object.SetName(name)
		stale = append(stale, object)
	}
	stranger := &unstructured.Unstructured{}
	stranger.SetAPIVersion("v1")
	stranger.SetKind("ConfigMap")
	stranger.SetNamespace(w.name)
	stranger.SetName("stranger")
	t.Must(w.client.Create(t.Context(), stranger.DeepCopy()), "create what is not ours")

	mine := ssa.DefaultDeleteOptions()
	mine.Inclusions = w.manager.GetOwnerLabels("loop", w.name)
	changes, err := w.manager.DeleteAll(t.Context(), append(stale, stranger), mine)
	t.Must(err, "prune")
	t.Must(w.manager.WaitForTermination(stale, ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: 20 * time.Second}), "wait")
	actions := changes.ToMap()
	t.Want(actions["ConfigMap/"+w.name+"/settings"] == ssa.DeletedAction, "ours deleted, not %v", actions)
	t.Want(actions["ConfigMap/"+w.name+"/stranger"] == ssa.SkippedAction, "the other skipped, not %v", actions)
	w.live(t, stranger)
}

func (w *world) deleteAll(t *check.T) {
	objects := w.objects(t)
	_, err := w.manager.DeleteAll(t.Context(), objects, ssa.DefaultDeleteOptions())
	t.Must(err, "delete")
	t.Must(w.manager.WaitForTermination(objects, ssa.WaitOptions{Interval: 200 * time.Millisecond, Timeout: 30 * time.Second}), "wait")
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	err = w.client.Get(t.Context(), client.ObjectKey{Name: w.name}, namespace)
	t.Refused(err, apierrors.IsNotFound, "get the namespace")
}
