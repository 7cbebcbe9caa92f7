package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"hanse.test/clients/check"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func (w *world) checkWatches(suite *check.Suite) {
	suite.Run("a watch tells of every change, in order", w.watchOrder)
	suite.Run("a watch that lists first ends the list with a bookmark", w.watchList)
	suite.Run("a watcher waits until a condition holds", w.watchUntil)
}

func (w *world) checkInformers(suite *check.Suite) {
	suite.Run("typed informers follow", w.typedInformers)
	suite.Run("typed informers list by watching", func(t *check.T) {
		t.Want(w.requests.matching("GET ", w.namespace, "sendInitialEvents=true") > 0, "a watch that lists")
		t.Want(w.requests.matching("GET ", w.namespace, "/resourcequotas?") == w.requests.matching("/resourcequotas?", "watch=true"),
			"no list beside it: the server refused to list by watching")
	})
	suite.Run("an informer with selectors sees its part", w.selectedInformer)
	suite.Run("a dynamic informer follows", w.dynamicInformer)
	suite.Run("a metadata informer follows", w.metadataInformer)
}

func (w *world) watchOrder(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	t.Must(err, "list")
	watcher, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "app=watched"})
	t.Must(err, "watch")
	defer watcher.Stop()

	_, err = maps.Create(t.Context(), configMap("unwatched", nil), metav1.CreateOptions{})
	t.Must(err, "create another")
	created, err := maps.Create(t.Context(), configMap("watched", nil), metav1.CreateOptions{})
	t.Must(err, "create")
	created.Data = map[string]string{"a": "1"}
	updated, err := maps.Update(t.Context(), created, metav1.UpdateOptions{})
	t.Must(err, "update")
	// An object that a selector no longer selects is gone for that watch.
	updated.Labels = map[string]string{"app": "moved"}
	moved, err := maps.Update(t.Context(), updated, metav1.UpdateOptions{})
	t.Must(err, "move out")
	t.Must(maps.Delete(t.Context(), "watched", metav1.DeleteOptions{}), "delete")

	wanted := []struct {
		kind    watch.EventType
		version string
	}{{watch.Added, created.ResourceVersion}, {watch.Modified, updated.ResourceVersion}, {watch.Deleted, moved.ResourceVersion}}
	for _, want := range wanted {
		event := check.Receive(t, watcher.ResultChan(), string(want.kind))
		seen, ok := event.Object.(*corev1.ConfigMap)
		t.Want(ok && event.Type == want.kind, "%s, not %s %v", want.kind, event.Type, event.Object)
		t.Want(seen.ResourceVersion == want.version, "version %s, not %s", want.version, seen.ResourceVersion)
	}
}

func (w *world) watchList(t *check.T) {
	initial := true
	watcher, err := w.client.CoreV1().ConfigMaps(w.namespace).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: &initial, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	t.Must(err, "watch")
	defer watcher.Stop()
	for added := 0; ; {
		event := check.Receive(t, watcher.ResultChan(), "the list")
		if event.Type == watch.Added {
			added++
			continue
		}
		t.Want(event.Type == watch.Bookmark && added > 0, "a bookmark after objects, not %s", event.Type)
		seen := event.Object.(*corev1.ConfigMap)
		t.Want(seen.Annotations[metav1.InitialEventsAnnotationKey] == "true", "the annotation that ends the list")
		return
	}
}

func (w *world) watchUntil(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(t.Context(), configMap("awaited", nil), metav1.CreateOptions{})
	t.Must(err, "create")
	listWatch := cache.NewListWatchFromClient(w.client.CoreV1().RESTClient(), "configmaps", w.namespace,
		fields.OneTermEqualSelector("metadata.name", "awaited"))
	go func() {
		_, _ = maps.Update(context.WithoutCancel(t.Context()), configMap("awaited", map[string]string{"ready": "yes"}), metav1.UpdateOptions{})
	}()
	_, err = watchtools.UntilWithSync(t.Context(), listWatch, &corev1.ConfigMap{}, nil, func(event watch.Event) (bool, error) {
		seen, ok := event.Object.(*corev1.ConfigMap)
		return ok && seen.Data["ready"] == "yes", nil
	})
	t.Must(err, "wait")
}

// following counts what an informer's handlers are told.
type following struct{ told chan string }

func follow(t *check.T, informer cache.SharedIndexInformer, name func(any) string) *following {
	f := &following{told: make(chan string, 1000)}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(added any) { f.told <- "added " + name(added) },
		UpdateFunc: func(_, updated any) { f.told <- "updated " + name(updated) },
		DeleteFunc: func(deleted any) { f.told <- "deleted " + name(deleted) },
	})
	t.Must(err, "add a handler")
	return f
}

// next waits for the next thing told about objects whose name is `name`.
func (f *following) next(t *check.T, wanted, name string) {
	for {
		told := check.Receive(t, f.told, wanted+" "+name)
		var what, who string
		_, _ = fmt.Sscan(told, &what, &who)
		if who == name {
			t.Want(what == wanted, "%s %s, not %s", wanted, name, what)
			return
		}
	}
}

func nameOf(seen any) string {
	if tombstone, ok := seen.(cache.DeletedFinalStateUnknown); ok {
		seen = tombstone.Obj
	}
	return seen.(metav1.Object).GetName()
}

// story makes, changes and removes a ConfigMap and demands that the informer tells so.
func (w *world) story(t *check.T, informer cache.SharedIndexInformer, f *following, name string) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	created, err := maps.Create(t.Context(), configMap(name, nil), metav1.CreateOptions{})
	t.Must(err, "create")
	f.next(t, "added", name)
	created.Annotations = map[string]string{"changed": "yes"}
	_, err = maps.Update(t.Context(), created, metav1.UpdateOptions{})
	t.Must(err, "update")
	f.next(t, "updated", name)
	kept, exists, err := informer.GetStore().GetByKey(w.namespace + "/" + name)
	t.Must(err, "look into the store")
	t.Want(exists && kept.(metav1.Object).GetAnnotations()["changed"] == "yes", "the change in the store")
	t.Must(maps.Delete(t.Context(), name, metav1.DeleteOptions{}), "delete")
	f.next(t, "deleted", name)
	_, exists, err = informer.GetStore().GetByKey(w.namespace + "/" + name)
	t.Must(err, "look into the store")
	t.Want(!exists, "nothing left in the store")
}

func (w *world) typedInformers(t *check.T) {
	ctx, stop := background(t)
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, time.Hour, informers.WithNamespace(w.namespace))
	defer factory.Shutdown()
	defer stop()
	maps := factory.Core().V1().ConfigMaps()
	t.Must(maps.Informer().AddIndexers(cache.Indexers{"app": func(seen any) ([]string, error) {
		return []string{seen.(*corev1.ConfigMap).Labels["app"]}, nil
	}}), "add an index")
	told := follow(t, maps.Informer(), nameOf)
	factory.Apps().V1().Deployments().Informer()
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Services().Informer()
	factory.Batch().V1().Jobs().Informer()
	factory.Core().V1().ResourceQuotas().Informer()
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		t.Want(synced, "%s to sync", kind)
	}
	w.story(t, maps.Informer(), told, "typed-story")
	indexed, err := maps.Informer().GetIndexer().ByIndex("app", "bystander")
	t.Must(err, "look into the index")
	t.Want(len(indexed) == 1, "one object in the index, not %d", len(indexed))
	selected, err := maps.Lister().ConfigMaps(w.namespace).List(labels.SelectorFromSet(labels.Set{"app": "bystander"}))
	t.Must(err, "list from the store")
	t.Want(len(selected) == 1, "one object selected, not %d", len(selected))
}

func (w *world) selectedInformer(t *check.T) {
	ctx, stop := background(t)
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(w.namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = "app in (chosen,other)"
			options.FieldSelector = "metadata.name=chosen"
		}))
	defer factory.Shutdown()
	defer stop()
	informer := factory.Core().V1().ConfigMaps().Informer()
	told := follow(t, informer, nameOf)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	for _, name := range []string{"other", "chosen"} {
		_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(ctx, configMap(name, nil), metav1.CreateOptions{})
		t.Must(err, "create")
	}
	told.next(t, "added", "chosen")
	t.Want(len(informer.GetStore().List()) == 1, "one object in the store, not %d", len(informer.GetStore().List()))
}

func (w *world) dynamicInformer(t *check.T) {
	ctx, stop := background(t)
	client, err := dynamic.NewForConfig(w.config)
	t.Must(err, "make a dynamic client")
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, w.namespace, nil)
	defer factory.Shutdown()
	defer stop()
	informer := factory.ForResource(configMaps).Informer()
	told := follow(t, informer, nameOf)
	factory.Start(ctx.Done())
	t.Want(factory.WaitForCacheSync(ctx.Done())[configMaps], "to sync")
	w.story(t, informer, told, "dynamic-story")

	created, err := client.Resource(deployments).Namespace(w.namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "untyped"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "untyped"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "untyped"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/app"}}},
			},
		},
	}}, metav1.CreateOptions{})
	t.Must(err, "create a Deployment")
	replicas, _, _ := unstructured.NestedInt64(created.Object, "spec", "replicas")
	t.Want(replicas == 1, "defaults in the answer")
}

func (w *world) metadataInformer(t *check.T) {
	ctx, stop := background(t)
	// Its own client always asks for protobuf and for metadata alone.
	client, err := metadata.NewForConfig(w.config)
	t.Must(err, "make a metadata client")
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, w.namespace, nil)
	defer factory.Shutdown()
	defer stop()
	informer := factory.ForResource(configMaps).Informer()
	told := follow(t, informer, nameOf)
	factory.Start(ctx.Done())
	t.Want(factory.WaitForCacheSync(ctx.Done())[configMaps], "to sync")
	w.story(t, informer, told, "metadata-story")
	for _, kept := range informer.GetStore().List() {
		_, ok := kept.(*metav1.PartialObjectMetadata)
		t.Want(ok, "metadata alone, not %T", kept)
	}
	patched, err := client.Resource(configMaps).Namespace(w.namespace).Patch(ctx, "bystander", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{})
	t.Must(err, "patch metadata")
	t.Want(patched.Labels["seen"] == "yes", "the label in the answer")
}
