/** The SharedWorker that holds the browser's one event stream. */
import { Feed } from "./feed.js";

const feed = new Feed();
self.onconnect = ({ ports: [port] }) => feed.join(port);
