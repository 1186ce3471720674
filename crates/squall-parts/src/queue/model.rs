//! Models of the queue, and their twins with one weakened site.
